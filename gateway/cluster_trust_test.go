package gateway

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/pagetoken"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// relay is a server at an address that somebody who can write to the bucket has put there. It
// passes on what nodes send it to a real node.
type relay struct {
	t  *testing.T
	to string

	mu sync.Mutex
	// statuses are those of the answers of the node.
	statuses []int
}

// ServeHTTP answers with what the node answers.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the caller has gone
	}
	onward, err := http.NewRequestWithContext(req.Context(), http.MethodPost, "http://"+r.to+req.URL.Path, bytes.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return
	}
	onward.Header = req.Header
	res, err := http.DefaultClient.Do(onward)
	if err != nil {
		return
	}
	defer res.Body.Close()
	r.statuses = append(r.statuses, res.StatusCode)
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// distinctStatuses returns the statuses of the answers, in order, without repetitions of the one
// before.
func (r *relay) distinctStatuses() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Clone(r.statuses))
}

// TestBucketWriterReadsNothingFromNodes checks what somebody can do who can write to the bucket in
// which nodes find each other: make nodes call any address. That address gets proofs that no node
// accepts, and cannot answer any call.
func TestBucketWriterReadsNothingFromNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	at := c.whole.publish(block("ann", "bob"))
	goodNodes := slices.Clone(*c.alive.Load())
	holder := goodNodes[c.holders("ann")[0]]
	listBlocked := func(t *testing.T, nodes ...Node) (*skeinv1.ListBlockedResponse, error) {
		t.Helper()
		router := c.router(func() []Node { return nodes })
		res, err := router.graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "ann", AtLeast: at}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	startServer := func(t *testing.T, h http.Handler) (addr string) {
		t.Helper()
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}

	for _, name := range []string{holder.Name, "a-node-of-its-own"} {
		t.Run("relays to a node as "+name, func(t *testing.T) {
			r := &relay{t: t, to: holder.Addr}
			forged := Node{Name: name, Addr: startServer(t, r), Serves: events.AllPartitions()}
			_, err := listBlocked(t, forged)
			wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
			if got := r.distinctStatuses(); !slices.Equal(got, []int{http.StatusUnauthorized}) {
				t.Errorf("the node answered with the statuses %v, want only 401", got)
			}

			// The forged node does not keep good nodes from answering.
			res, err := listBlocked(t, append(slices.Clone(goodNodes), forged)...)
			if err != nil || len(res.GetEntries()) != 1 {
				t.Errorf("with good nodes besides: got %v and the error %v, want one entry", res, err)
			}
		})
	}
	t.Run("answers with an empty message", func(t *testing.T) {
		answerNothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
		})
		_, err := listBlocked(t, Node{Name: holder.Name, Serves: holder.Serves, Addr: startServer(t, answerNothing)})
		wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
	})
}

// TestUselessAnswersOfNodesAreNotPassedOn checks that a router asks another node if a node with the
// right keys gives incomplete answers, or answers that are older than a page token.
func TestUselessAnswersOfNodesAreNotPassedOn(t *testing.T) {
	c := newCluster(t, 3)
	early := c.whole.publish(follow("ann", "bob"))
	at := c.whole.publish(follow("ann", "cid"))
	firstPage := ask(c.whole, c.whole.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 1, AtLeast: at})
	holder := (*c.alive.Load())[c.holders("ann")[0]]
	var nodes atomic.Pointer[[]Node]
	router := c.router(func() []Node { return *nodes.Load() })

	pairs := []*skeinv1.FollowPair{userPair("ann", "bob"), userPair("ann", "cid")}
	for i, tc := range []struct {
		name        string
		req, answer proto.Message
	}{
		{
			"fewer parts than were asked for", &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: at},
			&skeinv1.CheckFollowsResponse{Position: at, Kinds: []skeinv1.FollowKind{skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT}},
		},
		{
			"more parts than were asked for", &skeinv1.CheckFollowsRequest{Pairs: pairs[:1], AtLeast: at},
			&skeinv1.CheckFollowsResponse{Position: at, Kinds: make([]skeinv1.FollowKind, 3)},
		},
		{
			"parts without times", &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: at, IncludeTimes: true},
			&skeinv1.CheckFollowsResponse{Position: at, Kinds: make([]skeinv1.FollowKind, 2)},
		},
		{
			"counts of boards for users", &skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"ann"}, AtLeast: at},
			&skeinv1.BatchGetFollowCountsResponse{Position: at, Boards: []*skeinv1.BoardFollowCounts{{}}},
		},
		{
			"before at_least", &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: at}, &skeinv1.ListFollowingResponse{Position: early},
		},
		{
			"before the page token", &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 1, PageToken: firstPage.GetNextPageToken()},
			&skeinv1.ListFollowingResponse{Position: early},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Start a node that proves to be one, and always gives this answer.
			srv := httptest.NewUnstartedServer(nil)
			badNode := Node{Name: fmt.Sprint("bad-", i), Addr: srv.Listener.Addr().String(), Serves: events.AllPartitions()}
			credentials := peers.NewCredentials(pagetoken.DefaultKeyRing(c.whole.log.ID()), c.whole.log.ID(), badNode.Name, badNode.Addr)
			srv.Config.Handler = credentials.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/proto")
				_, _ = w.Write(marshal(t, tc.answer))
			}), 1<<20)
			srv.Start()
			t.Cleanup(srv.Close)

			want, err := c.whole.callMethod(tc.req)
			if err != nil {
				t.Fatal(err)
			}

			// The partition of ann is even, so the router asks the first node by name first.
			nodes.Store(&[]Node{badNode, holder})
			retriedBefore := router.server.cluster.Calls.Retried.Load()
			if got, err := router.callMethod(tc.req); err != nil || !proto.Equal(got, want) {
				t.Errorf("got %v and the error %v, want the answer of the good node: %v", got, err, want)
			}
			if got := router.server.cluster.Calls.Retried.Load() - retriedBefore; got != 1 {
				t.Errorf("got %d retries, want 1: after the answer of the bad node", got)
			}
		})
	}
}
