package gateway

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// nodeWithout returns a node that does not hold a user.
func (c *cluster) nodeWithout(t *testing.T, user string) *world {
	t.Helper()
	for _, n := range c.nodes {
		if !n.server.holds(user) {
			return n
		}
	}
	t.Fatalf("all nodes hold %s", user)
	return nil
}

// A node that does not hold a reader passes on the stream of a node that does.
func TestClusterWatchFeed(t *testing.T) {
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "ann")
	at := n.publish(follow("ann", "bob"), pinned("bob", "", "before"))
	token := n.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetNewestToken()
	f := n.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", NewerThan: token, AtLeast: at})
	if m := f.next(); m.GetCount() != 0 || m.GetCompleteness() != complete {
		t.Errorf("the first message is %v, expected a complete count of 0", m)
	}
	for i := range 3 {
		f.reach(n.publish(pinned("bob", "", fmt.Sprint(i))))
	}
}

// A node that does not hold a user passes on all messages of a scan.
func TestClusterScanFollowers(t *testing.T) {
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "star")
	at, want := n.fans("star", 2500)
	got, _ := n.scan(scanUser("star", "", at), nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("followers of one scan (-expected +got):\n%s", diff)
	}
	piece, token := n.scan(scanUser("star", "", at), func(*skeinv1.ScanFollowersResponse) bool { return true })
	rest, _ := n.scan(scanUser("star", token, at), nil)
	if diff := cmp.Diff(want, append(piece, rest...)); diff != "" {
		t.Errorf("followers of a scan in two pieces (-expected +got):\n%s", diff)
	}
}

// If a node accepts a stream and sends nothing, the other node that holds the user answers.
func TestClusterStreamsAvoidHungNode(t *testing.T) {
	c := newCluster(t, 3)
	at, want := c.whole.fans("star", 10)
	healthy := *c.alive.Load()
	hung, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.Close() })
	var retried uint64
	for _, i := range c.holders("star") { // one of the two holders is asked first
		alive := slices.Clone(healthy)
		alive[i].Addr = hung.Addr().String()
		for _, stream := range []func(*world){
			func(router *world) {
				if got, _ := router.scan(scanUser("star", "", at), nil); !slices.Equal(got, want) {
					t.Errorf("got the followers %v, expected %v", got, want)
				}
			},
			func(router *world) { router.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "star", AtLeast: at}).next() },
		} {
			router := c.router(func() []Node { return alive })
			stream(router)
			retried += router.server.cluster.Calls.Retried.Load()
		}
	}
	if retried != 2 {
		t.Errorf("%d streams were retried, expected 2: those that asked the hung node first", retried)
	}
}

// A stream ends when its node is no longer alive, although its connection is open. A new stream is
// answered by another node.
func TestClusterStreamsEndWithTheirNode(t *testing.T) {
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "ann")
	all, holders := *c.alive.Load(), c.holders("ann")
	nodesWithout := func(indexes ...int) *[]Node {
		var rest []Node
		for i, node := range all {
			if !slices.Contains(indexes, i) {
				rest = append(rest, node)
			}
		}
		return &rest
	}
	for i, holder := range holders {
		c.alive.Store(nodesWithout(holders[1-i])) // only this holder can answer the stream
		f := n.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: n.publish(follow("ann", fmt.Sprint("user", i)))})
		f.next()
		c.alive.Store(nodesWithout(holder))
		for f.Receive() {
		}
		wantError(t, f.Err(), connect.CodeUnavailable, "", "")
	}
}

// holders returns the indexes of the nodes that hold a user.
func (c *cluster) holders(user string) (indexes []int) {
	for i, n := range c.nodes {
		if n.server.holds(user) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// Any node knows how many users a follower follows.
func TestClusterFolloweeLimit(t *testing.T) {
	c := newCluster(t, 3, func(o *worldOptions) { o.Limits.Followees = 2 })
	n := c.nodeWithout(t, "ann")
	n.caughtUp(n.publish(follow("ann", "bob"), follow("ann", "cid"))) // other nodes are asked for a state at or after that of this node
	_, err := n.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "dan")}}))
	wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[0].user_followed")
	n.publish(unfollow("ann", "bob"), follow("ann", "dan"))
}

// A node that does not hold the follower looks up the number of followees in a first run that lacks
// it. What that run finds must not be cached.
func TestClusterRefusesEveryFollowBeyondTheLimit(t *testing.T) {
	const limit = 20
	c := newCluster(t, 3, func(o *worldOptions) { o.Limits.Followees = limit })
	n := c.nodeWithout(t, "ann")
	var follows []*skeinv1.Event
	for i := range limit {
		follows = append(follows, follow("ann", fmt.Sprint("user", i)))
	}
	n.caughtUp(n.publish(follows...))
	for range 3 {
		_, err := n.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "one-more")}}))
		wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[0].user_followed")
	}
}

// Calls about a partition that no node serves fail, and the error has its number. Other calls are
// answered.
func TestClusterNamesPartitionsThatNobodyServes(t *testing.T) {
	c := newCluster(t, 3, func(o *worldOptions) { o.Limits.Followees = 1 })
	n := c.nodeWithout(t, "ann")
	at := n.publish(follow("ann", "bob"))
	var localUser string
	for i := 0; localUser == ""; i++ {
		if user := fmt.Sprint("user", i); n.server.holds(user) {
			localUser = user
		}
	}
	c.alive.Store(&[]Node{})
	partition := fmt.Sprintf("partition %d of", peers.PartitionOf("ann"))
	expectNobody := func(what string, err error) {
		t.Helper()
		f := apierror.OfPeer(err)
		if !strings.Contains(fmt.Sprint(f), partition) {
			t.Errorf("%s: got %v, expected an error with %q", what, f, partition)
		}
		wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
	}
	_, err := n.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at}))
	expectNobody("a list", err)
	_, err = n.graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
		Pairs: []*skeinv1.FollowPair{userPair("ann", "bob"), userPair(localUser, "bob")}, AtLeast: at,
	}))
	expectNobody("a call with parts", err)
	n.publish(follow("ann", "cid")) // beyond the followee cap, which nobody can check now
	stream, err := n.feed.WatchFeed(t.Context(), connect.NewRequest(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at}))
	if err != nil {
		t.Fatal(err)
	}
	if stream.Receive() {
		t.Errorf("the stream has the message %v, expected none", stream.Msg())
	}
	expectNobody("a stream", stream.Err())
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: localUser, AtLeast: at})); err != nil {
		t.Errorf("a list of a user whom this node holds: got %v, expected no error", err)
	}
}

// The listener for nodes answers nobody who does not prove to be a node.
func TestClusterListenerRefusesStrangers(t *testing.T) {
	c := newCluster(t, 2)
	for _, procedure := range []string{peerv1connect.PeerServiceAskProcedure, connectv1.GraphServiceListFollowingProcedure, "/"} {
		for _, proof := range []string{"", "Bearer x", "Skein-Node 1 2 3 4 5", "Skein-Node"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+(*c.alive.Load())[0].Addr+procedure, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/proto")
			req.Header.Set("Authorization", proof)
			res, err := c.nodes[0].http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with the header %q: got %s, %v; expected status 401", procedure, proof, res.Status, err)
			}
		}
	}
}

// If the only node that holds a user cannot answer, the error is its own, as that of a process that
// holds everything.
func TestClusterOfOneSaysWhyItLags(t *testing.T) {
	c := newCluster(t, 1, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	at := c.whole.publish(follow("ann", "bob"))
	_, err := c.nodes[0].graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	_, err = c.nodes[0].graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
		Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at,
	}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
}
