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

// holders returns the indexes of the nodes that hold a user.
func (c *cluster) holders(user string) (indexes []int) {
	for i, n := range c.nodes {
		if n.server.holds(user) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// TestClusterPassesOnFeedStream checks that a node that does not hold a reader passes on the stream
// of a node that does.
func TestClusterPassesOnFeedStream(t *testing.T) {
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "ann")
	at := n.publish(follow("ann", "bob"), pinned("bob", "", "before"))
	token := n.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetNewestToken()
	f := n.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", NewerThan: token, AtLeast: at})
	if m := f.next(); m.GetCount() != 0 || m.GetCompleteness() != complete {
		t.Errorf("first message: got %v, want a complete count of 0", m)
	}
	for i := range 3 {
		f.reach(n.publish(pinned("bob", "", fmt.Sprint(i))))
	}
}

// TestClusterPassesOnScan checks that a node that does not hold a user passes on all messages of a
// scan, also of one that ends early and is resumed.
func TestClusterPassesOnScan(t *testing.T) {
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "star")
	at, want := n.fans("star", 2500)
	got, _ := n.scan(scanUser("star", "", at), nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("followers of a whole scan (-want +got)\n%s", diff)
	}

	stopAfterFirstMessage := func(*skeinv1.ScanFollowersResponse) bool { return true }
	begin, token := n.scan(scanUser("star", "", at), stopAfterFirstMessage)
	rest, _ := n.scan(scanUser("star", token, at), nil)
	if diff := cmp.Diff(want, append(begin, rest...)); diff != "" {
		t.Errorf("followers of a resumed scan (-want +got)\n%s", diff)
	}
}

// TestClusterStreamsAvoidHungNode checks that, if a node accepts a stream and sends nothing, the
// other node that holds the user answers.
func TestClusterStreamsAvoidHungNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	at, want := c.whole.fans("star", 10)
	healthy := *c.alive.Load()
	hung, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.Close() })
	streams := map[string]func(t *testing.T, router *world){
		"scan": func(t *testing.T, router *world) {
			if got, _ := router.scan(scanUser("star", "", at), nil); !slices.Equal(got, want) {
				t.Errorf("got the followers %v, want %v", got, want)
			}
		},
		"feed": func(_ *testing.T, router *world) {
			router.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "star", AtLeast: at}).next()
		},
	}

	// Let each of the two holders hang in turn. A router asks one of the two first, so each stream
	// is retried once in the two turns. It is retried more often if the healthy node, too, needs
	// more than the second that a node gets while there is another one.
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) {
			var retried uint64
			for _, i := range c.holders("star") {
				withHungNode := slices.Clone(healthy)
				withHungNode[i].Addr = hung.Addr().String()
				router := c.router(func() []Node { return withHungNode })
				stream(t, router)
				retried += router.server.cluster.Calls.Retried.Load()
			}
			if retried == 0 {
				t.Error("got no retries, want at least one: of the stream that asked the hung node first")
			}
		})
	}
}

// TestClusterStreamsEndWithTheirNode checks that a stream ends when its node is no longer alive,
// although its connection is open. Another node answers a new stream.
func TestClusterStreamsEndWithTheirNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	n := c.nodeWithout(t, "ann")
	all := *c.alive.Load()
	allWithout := func(index int) *[]Node {
		rest := slices.Delete(slices.Clone(all), index, index+1)
		return &rest
	}

	holders := c.holders("ann")
	for i, holder := range holders {
		// Only this holder can answer the stream.
		otherHolder := holders[1-i]
		c.alive.Store(allWithout(otherHolder))
		at := n.publish(follow("ann", fmt.Sprint("user", i)))
		f := n.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
		f.next()

		c.alive.Store(allWithout(holder))
		for f.Receive() {
		}
		wantError(t, f.Err(), connect.CodeUnavailable, "", "")
		n.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at}).next()
	}
}

// TestClusterLimitsFollowees checks that a node that does not hold the follower knows how many
// users the follower follows.
func TestClusterLimitsFollowees(t *testing.T) {
	c := newCluster(t, 3, func(o *worldOptions) { o.Limits.Followees = 2 })
	n := c.nodeWithout(t, "ann")
	// A node asks others for a state at or after its own, so wait until its own has the follows.
	n.caughtUp(n.publish(follow("ann", "bob"), follow("ann", "cid")))
	_, err := n.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "dan")}}))
	wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[0].user_followed")

	n.publish(unfollow("ann", "bob"), follow("ann", "dan"))
}

// TestClusterRefusesEveryFollowBeyondTheLimit checks that a node refuses the same follow again and
// again. A node that does not hold the follower first runs the check without the number of
// followees, to find out that it must ask another node, and must not cache the result of that run.
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

// TestClusterNamesPartitionsThatNobodyServes checks that calls about a partition that no node
// serves fail with an error that has its number. Other calls are answered.
func TestClusterNamesPartitionsThatNobodyServes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(o *worldOptions) { o.Limits.Followees = 1 })
	n := c.nodeWithout(t, "ann")
	at := n.publish(follow("ann", "bob"))
	localUser := ""
	for i := 0; localUser == ""; i++ {
		if user := fmt.Sprint("user", i); n.server.holds(user) {
			localUser = user
		}
	}
	c.alive.Store(&[]Node{})

	wantNobodyServes := func(t *testing.T, err error) {
		t.Helper()
		want := fmt.Sprintf("partition %d of", peers.PartitionOf("ann"))
		if got := fmt.Sprint(apierror.OfPeer(err)); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
		wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
	}
	t.Run("list", func(t *testing.T) {
		_, err := n.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at}))
		wantNobodyServes(t, err)
	})
	t.Run("call of which one part is local", func(t *testing.T) {
		_, err := n.graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
			Pairs: []*skeinv1.FollowPair{userPair("ann", "bob"), userPair(localUser, "bob")}, AtLeast: at,
		}))
		wantNobodyServes(t, err)
	})
	t.Run("stream", func(t *testing.T) {
		stream, err := n.feed.WatchFeed(t.Context(), connect.NewRequest(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at}))
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() {
			t.Errorf("got the message %v, want an error", stream.Msg())
		}
		wantNobodyServes(t, stream.Err())
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("publish beyond the limit of followees", func(*testing.T) {
		// Nobody can tell how many users ann follows, so the follow is accepted.
		ask(n, n.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "cid")}})
	})
	t.Run("list of a local user", func(t *testing.T) {
		_, err := n.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: localUser, AtLeast: at}))
		if err != nil {
			t.Errorf("got %v, want an answer", err)
		}
	})
}

// TestClusterListenerRefusesStrangers checks that the listener for nodes answers nobody who does
// not prove to be a node.
func TestClusterListenerRefusesStrangers(t *testing.T) {
	c := newCluster(t, 2)
	addr := (*c.alive.Load())[0].Addr
	for _, procedure := range []string{peerv1connect.PeerServiceAskProcedure, connectv1.GraphServiceListFollowingProcedure, "/"} {
		for _, proof := range []string{"", "Bearer x", "Skein-Node 1 2 3 4 5", "Skein-Node"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+procedure, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/proto")
			req.Header.Set("Authorization", proof)
			res, err := c.nodes[0].http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with the proof %q: got the status %s, want 401", procedure, proof, res.Status)
			}
		}
	}
}

// TestClusterOfOneSaysWhyItLags checks that, if the only node that holds a user cannot answer, the
// error is the same as that of a process that holds everything.
func TestClusterOfOneSaysWhyItLags(t *testing.T) {
	c := newCluster(t, 1, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	at := c.whole.publish(follow("ann", "bob"))
	for name, w := range map[string]*world{"node": c.nodes[0], "whole": c.whole} {
		t.Run(name, func(t *testing.T) {
			_, err := w.graph.ListFollowing(t.Context(), connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at}))
			wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
			_, err = w.graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at,
			}))
			wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
		})
	}
}
