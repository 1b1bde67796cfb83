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

// relay is what a writer of the bucket runs at the address that it has written: it sends what nodes
// send it to a node.
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

// A writer of the bucket can make nodes call any address. It gets proofs there that no node
// accepts, and cannot answer any call.
func TestBucketWriterReadsNothingFromNodes(t *testing.T) {
	c := newCluster(t, 3)
	at := c.whole.publish(block("ann", "bob"))
	well := slices.Clone(*c.alive.Load())
	holder := well[c.holders("ann")[0]]
	list := func(nodes ...Node) (*skeinv1.ListBlockedResponse, error) {
		router := c.router(func() []Node { return nodes })
		res, err := router.graph.ListBlocked(t.Context(), connect.NewRequest(&skeinv1.ListBlockedRequest{UserId: "ann", AtLeast: at}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	serve := func(h http.Handler) (addr string) {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	for _, name := range []string{holder.Name, "a-node-of-its-own"} {
		t.Run("relays to a node as "+name, func(t *testing.T) {
			r := &relay{t: t, to: holder.Addr}
			forged := Node{Name: name, Addr: serve(r), Serves: events.AllPartitions()}
			_, err := list(forged)
			wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
			r.mu.Lock()
			statuses := slices.Compact(slices.Clone(r.statuses))
			r.mu.Unlock()
			if !slices.Equal(statuses, []int{http.StatusUnauthorized}) {
				t.Errorf("the node answered with the statuses %v, want only 401", statuses)
			}
			if res, err := list(append(slices.Clone(well), forged)...); err != nil || len(res.GetEntries()) != 1 {
				t.Errorf("beside good nodes: %v, %v", res, err)
			}
		})
	}
	t.Run("answers with an empty message", func(t *testing.T) {
		forged := Node{Name: holder.Name, Serves: holder.Serves, Addr: serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
		}))}
		_, err := list(forged)
		wantError(t, err, connect.CodeUnavailable, "NOT_HERE", "")
	})
}

// A node that has the keys, but gives incomplete answers, or answers that are older than a page
// token, is passed over.
func TestUselessAnswersOfNodesAreNotPassedOn(t *testing.T) {
	c := newCluster(t, 3)
	early := c.whole.publish(follow("ann", "bob"))
	at := c.whole.publish(follow("ann", "cid"))
	page := ask(c.whole, c.whole.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 1, AtLeast: at}).GetNextPageToken()
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
			"before the page token", &skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 1, PageToken: page},
			&skeinv1.ListFollowingResponse{Position: early},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(nil)
			bad := Node{Name: fmt.Sprint("bad-", i), Addr: srv.Listener.Addr().String(), Serves: events.AllPartitions()}
			srv.Config.Handler = peers.NewCredentials(pagetoken.DefaultKeyRing(c.whole.log.ID()), c.whole.log.ID(), bad.Name, bad.Addr).Protect(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/proto")
					_, _ = w.Write(marshal(t, tc.answer))
				}), 1<<20)
			srv.Start()
			t.Cleanup(srv.Close)

			want, err := c.whole.answerTo(tc.req)
			if err != nil {
				t.Fatal(err)
			}
			again := router.server.cluster.Calls.Retried.Load()
			nodes.Store(&[]Node{bad, holder}) // the partition is even, so the first by name is asked first
			if got, err := router.answerTo(tc.req); err != nil || !proto.Equal(got, want) {
				t.Errorf("beside a good node: got %v, %v, want %v", got, err, want)
			}
			if n := router.server.cluster.Calls.Retried.Load() - again; n != 1 {
				t.Errorf("%d nodes were passed over, want 1", n)
			}
		})
	}
}
