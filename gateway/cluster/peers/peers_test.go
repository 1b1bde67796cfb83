package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/pagetoken"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const askProcedure = peerv1connect.PeerServiceAskProcedure

// askFunc answers an AskRequest, as a node does.
type askFunc = func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error)

// startNode starts a node that answers AskRequests with a function.
func startNode(t *testing.T, name string, serves events.Partitions, answer askFunc) Node {
	t.Helper()
	addr := serveNode(t, name, newAskHandler(answer))
	return Node{Name: name, Addr: addr, Serves: serves}
}

// testLog and testKeys are the log and the keys of all nodes in these tests.
var (
	testLog  = events.LogID{1}
	testKeys = pagetoken.DefaultKeyRing(testLog)
)

// serveNode starts a node that proves its answers and has the handler h. It returns the address of
// the node.
func serveNode(t *testing.T, name string, h http.Handler) (addr string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	addr = srv.Listener.Addr().String()
	srv.Config.Handler = NewCredentials(testKeys, testLog, name, addr).Protect(h, 1<<20)
	srv.Start()
	t.Cleanup(srv.Close)
	return addr
}

// newAskHandler returns a handler of AskRequests that answers with a function.
func newAskHandler(answer askFunc) http.Handler {
	return connect.NewUnaryHandler(askProcedure,
		func(ctx context.Context, req *connect.Request[peerv1.AskRequest]) (*connect.Response[peerv1.AskResponse], error) {
			res, err := answer(ctx, req.Msg)
			if err != nil {
				return nil, apierror.Of(err).ConnectError()
			}
			return connect.NewResponse(res), nil
		})
}

// positionAt returns a position of testLog.
func positionAt(seq uint64) events.Position {
	return events.Position{Log: [4]byte{1}, Epoch: 1, Seq: seq}
}

// answerAs answers each question with an item that has the name of the node.
func answerAs(name string, seq uint64) askFunc {
	return func(_ context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		res := &peerv1.AskResponse{Newest: positionAt(seq).String()}
		for range req.GetQuestions() {
			res.Answers = append(res.Answers, &peerv1.Answer{Entries: []*peerv1.Entry{{Item: name}}})
		}
		return res, nil
	}
}

// hangUntilCanceled does not answer.
func hangUntilCanceled(ctx context.Context, _ *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// breakConnection closes the connection without an answer.
func breakConnection(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	panic(http.ErrAbortHandler) // the HTTP server does so at this panic
}

// refuseWith answers with an error.
func refuseWith(err error) askFunc {
	return func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) { return nil, err }
}

// newTestPeers returns the Peers of a cluster with the nodes.
func newTestPeers(t *testing.T, nodes ...Node) *Peers {
	t.Helper()
	p := New(Options{
		Nodes: func() []Node { return nodes }, Keys: testKeys, Log: testLog, Logger: slog.New(slog.DiscardHandler),
		Bytes: admission.NewBudget(admission.Class{Name: "bytes", Limit: 1 << 30, CallerLimit: 1 << 29}),
	})
	t.Cleanup(p.Close)
	return p
}

// forwardAsk forwards a question about partition 0, and returns the name of the node that has
// answered.
func forwardAsk(t *testing.T, p *Peers) (string, error) {
	t.Helper()
	req := &peerv1.AskRequest{Questions: []*peerv1.Question{{}}}
	res, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, 0, askProcedure, req)
	if err != nil {
		return "", err
	}
	return res.GetAnswers()[0].GetEntries()[0].GetItem(), nil
}

// TestNextNodeIsAskedWhenOneFails checks that the next node is asked if a node does not answer, or
// does not serve the partition. A node that did not answer is then suspected, and one that does not
// serve the partition is not.
func TestNextNodeIsAskedWhenOneFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		answer          askFunc // of the node that is asked first
		wantIsSuspected bool
	}{
		{"the node hangs", hangUntilCanceled, true},
		{"the node does not serve the partition", refuseWith(NotHereError()), false},
		{"the connection breaks", breakConnection, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := events.AllPartitions()
			var isAsked atomic.Bool
			a := startNode(t, "a", all, func(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
				isAsked.Store(true)
				return c.answer(ctx, req)
			})
			b := startNode(t, "b", all, answerAs("b", 1))
			p := newTestPeers(t, a, b)
			if !c.wantIsSuspected {
				// Node b joins when a is asked. If both were there from the beginning and a took
				// a second on a busy machine, b would answer first, and a would be suspected.
				p.nodes = func() []Node {
					if isAsked.Load() {
						return []Node{a, b}
					}
					return []Node{a}
				}
			}
			p.hedgeCredit = answersPerHedge - 1 // not enough for a hedge, so that only the failure of node a counts
			if got := p.nodesServing(0, nil)[0].Name; got != "a" {
				t.Fatalf("first node to ask: got %s, want a", got)
			}

			if got, err := forwardAsk(t, p); err != nil || got != "b" {
				t.Fatalf("got the answer of %q and the error %v, want the answer of b", got, err)
			}

			// The entry remains when the suspicion ends, so the test may take longer than that.
			p.mu.Lock()
			_, isSuspected := p.suspected["a"]
			p.mu.Unlock()
			if isSuspected != c.wantIsSuspected {
				t.Errorf("node a is suspected: got %t, want %t", isSuspected, c.wantIsSuspected)
			}
		})
	}
}

// testAnswer is how a node answers: after some time, and with err unless it is nil.
type testAnswer struct {
	after time.Duration
	err   error
}

// TestSlowNodeIsHedged checks that while a node is slow, another one is asked in addition. The
// first answer, or the first error that is the caller's fault, ends the wait for the other node.
func TestSlowNodeIsHedged(t *testing.T) {
	const ms = time.Millisecond
	errOfCaller := &apierror.Failure{Code: connect.CodeInvalidArgument, Text: "bad"}
	refusedMemory := &apierror.Failure{Code: connect.CodeResourceExhausted, Cause: errNoMemory}

	// Node a is asked first, and node b 50 ms later (maxHedgeDelay). Without credit for a hedge,
	// node b is asked after a second (attemptTimeout).
	for _, c := range []struct {
		name       string
		a, b       testAnswer // of the nodes a and b
		credit     int        // the number of hedges that may be made
		want       string     // the name of the node whose answer is kept
		wantErr    error
		wantTime   time.Duration
		wantHedges uint64
		wantLast   string // the node that is asked last after the call
	}{
		{
			"a answers just before the hedge",
			testAnswer{after: 49 * ms},
			testAnswer{},
			1, "a", nil, 49 * ms, 0, "b",
		},
		{
			"b answers before a",
			testAnswer{after: never},
			testAnswer{after: ms},
			1, "b", nil, 51 * ms, 1, "b",
		},
		{
			"a answers before b",
			testAnswer{after: 60 * ms},
			testAnswer{after: never},
			1, "a", nil, 60 * ms, 1, "b",
		},
		{
			"b has an error of the caller",
			testAnswer{after: never},
			testAnswer{err: errOfCaller},
			1, "", errOfCaller, 50 * ms, 1, "b",
		},
		{
			"a has an error of the caller after the hedge began",
			testAnswer{60 * ms, errOfCaller},
			testAnswer{after: never},
			1, "", errOfCaller, 60 * ms, 1, "b",
		},
		{
			"b does not serve the partition",
			testAnswer{after: 2 * time.Second},
			testAnswer{err: NotHereError()},
			1, "a", nil, 2 * time.Second, 1, "b",
		},
		{
			"this process has no memory for the answer of b",
			testAnswer{after: 60 * ms},
			testAnswer{err: refusedMemory},
			1, "a", nil, 60 * ms, 1, "b",
		},
		{
			"no hedge is left",
			testAnswer{after: never},
			testAnswer{after: ms},
			0, "b", nil, time.Second + ms, 0, "a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := events.AllPartitions()
				p := newTestPeers(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = c.credit * answersPerHedge
				keptAnswers := ""
				ask := func(ctx context.Context, n *Node, _ []int) (keep func(), err error) {
					answer := c.a
					if n.Name == "b" {
						answer = c.b
					}
					if err := wait.For(ctx, answer.after); err != nil {
						return nil, err
					}
					return func() { keptAnswers += n.Name }, answer.err
				}

				start := time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, ask)
				if keptAnswers != c.want || !errors.Is(err, c.wantErr) {
					t.Errorf("got the answer of %q and the error %v, want that of %q and %v", keptAnswers, err, c.want, c.wantErr)
				}
				if took := time.Since(start); took != c.wantTime {
					t.Errorf("time of the call: got %v, want %v", took, c.wantTime)
				}
				if got := p.Calls.Hedged.Load(); got != c.wantHedges {
					t.Errorf("hedges: got %d, want %d", got, c.wantHedges)
				}
				if got := p.nodesServing(0, nil)[1].Name; got != c.wantLast {
					t.Errorf("node that is asked last after the call: got %s, want %s", got, c.wantLast)
				}
				if got := p.Calls.Failed.Load(); got != 0 {
					t.Errorf("failed calls: got %d, want 0", got)
				}
			})
		})
	}
}

// TestUnreachableNodesAreRetried checks that a slow node has time to answer if no other node has
// answered, and that nodes that could not be reached are asked again a few times.
func TestUnreachableNodesAreRetried(t *testing.T) {
	errRefused := errors.New("connection refused")
	answerSlowly := func(ctx context.Context, _ int) error { return wait.For(ctx, 1500*time.Millisecond) }
	// breakFirst returns a function that fails in the first calls.
	breakFirst := func(calls int) func(context.Context, int) error {
		return func(_ context.Context, earlierCalls int) error {
			if earlierCalls < calls {
				return errRefused
			}
			return nil
		}
	}

	// The pauses before the second, third and fourth call are 100, 300 and 900 ms. There is no
	// fifth call.
	for _, c := range []struct {
		name      string
		answer    func(ctx context.Context, earlierCalls int) error // of node a; node b cannot be reached
		want      string                                            // the name of the node whose answer is kept
		wantCalls int
		wantTime  time.Duration
	}{
		{"slow, and the other node is gone", answerSlowly, "a", 1, 1500 * time.Millisecond},
		{"a broken connection", breakFirst(1), "a", 2, 100 * time.Millisecond},
		{"back at the last retry", breakFirst(3), "a", 4, 1300 * time.Millisecond},
		{"gone as well", breakFirst(4), "", 4, 1300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := events.AllPartitions()
				p := newTestPeers(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = 0
				keptAnswers := ""
				calls := 0
				ask := func(ctx context.Context, n *Node, _ []int) (keep func(), err error) {
					if n.Name == "b" {
						return nil, errRefused
					}
					calls++
					return func() { keptAnswers += n.Name }, c.answer(ctx, calls-1)
				}

				start := time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, ask)
				took := time.Since(start)
				wantsError := c.want == ""
				if keptAnswers != c.want || (err != nil) != wantsError {
					t.Errorf("got the answer of %q and the error %v, want that of %q (an error: %t)", keptAnswers, err, c.want, wantsError)
				}
				if calls != c.wantCalls || took != c.wantTime {
					t.Errorf("got %d calls of node a in %v, want %d in %v", calls, took, c.wantCalls, c.wantTime)
				}
			})
		})
	}
}

// TestFailedCallIsLoggedWithItsCause checks that a node logs once per failureLogInterval that it
// reaches no other node, with what happened to the connection.
func TestFailedCallIsLoggedWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPeers(t, Node{Name: "a", Serves: events.AllPartitions()})
		var log strings.Builder
		p.logger = slog.New(slog.NewTextHandler(&log, nil))
		expectFailureAndLines := func(wantLines int) {
			t.Helper()
			err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(context.Context, *Node, []int) (func(), error) {
				return nil, errors.New("connection refused")
			})
			if got := apierror.Of(err).Reason; got != skeinv1.Reason_REASON_NOT_HERE {
				t.Fatalf("reason of %v: got %v, want NOT_HERE", err, got)
			}
			if got := strings.Count(log.String(), `cause="connection refused"`); got != wantLines {
				t.Fatalf("lines with the cause: got %d, want %d in the log:\n%s", got, wantLines, log.String())
			}
		}

		// Only the third call fails at least failureLogInterval after the first one.
		expectFailureAndLines(1)
		<-time.After(failureLogInterval / 2) // by the clock of synctest
		expectFailureAndLines(1)
		<-time.After(failureLogInterval / 2)
		expectFailureAndLines(2)
	})
}

// never is longer than any test waits for an answer.
const never = time.Hour

// hedgedPeers are Peers of two nodes. Node a answers each call after a time that the test gives.
// Hedges go to node b, which answers in a millisecond.
type hedgedPeers struct {
	*Peers
	a Node
}

func newHedgedPeers(t *testing.T) *hedgedPeers {
	t.Helper()
	all := events.AllPartitions()
	a := Node{Name: "a", Serves: all}
	b := Node{Name: "b", Serves: all}
	return &hedgedPeers{newTestPeers(t, a, b), a}
}

// call makes a call that node a answers after some time. It returns how long the call took.
func (p *hedgedPeers) call(t *testing.T, procedure string, after time.Duration) time.Duration {
	t.Helper()
	ask := func(ctx context.Context, n *Node, _ []int) (keep func(), err error) {
		keep = func() {}
		if n.Name == "b" {
			return keep, wait.For(ctx, time.Millisecond)
		}
		return keep, wait.For(ctx, after)
	}
	s := &scatter{Peers: p.Peers, procedure: procedure, partitions: []uint8{0}, ask: ask}

	// Unlike Scatter, askGroup always asks node a first, even while it is suspected.
	start := time.Now()
	_, err := s.askGroup(t.Context(), &nodeGroup{node: p.a, indexes: []int{0}, hasAlternatives: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestHedgeDelayFollowsTheLatencyOfTheMethod checks that a hedge is made after twice the time
// within which a node answers 19 of 20 calls of a method, within limits. Calls that a hedge has
// overtaken count as slower ones. In the long run at most a twentieth of the calls has hedges.
func TestHedgeDelayFollowsTheLatencyOfTheMethod(t *testing.T) {
	const ms = time.Millisecond
	always := func(latency time.Duration) func(*rand.Rand) time.Duration {
		return func(*rand.Rand) time.Duration { return latency }
	}

	for _, c := range []struct {
		name             string
		latency          func(*rand.Rand) time.Duration // of one call of node a
		minWant, maxWant time.Duration
	}{
		{"at once", always(0), minHedgeDelay, minHedgeDelay},
		{"10 ms", always(10 * ms), 19 * ms, 24 * ms},
		{
			"up to 10 ms",
			func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(10 * ms))) },
			16 * ms, 22 * ms,
		},
		{"too long", always(2 * maxHedgeDelay), maxHedgeDelay, maxHedgeDelay},
		{
			"a tenth is long",
			func(r *rand.Rand) time.Duration {
				if r.IntN(10) == 0 {
					return 20 * ms
				}
				return ms
			},
			30 * ms, maxHedgeDelay,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 3000
				p := newHedgedPeers(t)
				rng := rand.New(rand.NewPCG(1, 2))

				// During the first calls, the delay approaches its value, and the hedges that were
				// saved up are used. So hedges are counted only after them.
				for range calls {
					p.call(t, "often", c.latency(rng))
				}
				hedgesBefore := p.Calls.Hedged.Load()
				for range calls {
					p.call(t, "often", c.latency(rng))
				}

				if got := p.hedgeDelay("a", "often"); got < c.minWant || got > c.maxWant {
					t.Errorf("hedge delay: got %v, want %v to %v", got, c.minWant, c.maxWant)
				}
				if got := p.Calls.Hedged.Load() - hedgesBefore; got > calls/answersPerHedge {
					t.Errorf("hedges in %d calls: got %d, want at most %d", calls, got, calls/answersPerHedge)
				}
				if got := p.hedgeDelay("a", "seldom"); got != maxHedgeDelay {
					t.Errorf("hedge delay of a method that was not called: got %v, want %v", got, maxHedgeDelay)
				}
			})
		})
	}
}

// TestHungNodeIsAskedLast checks that a node that answered well is suspected after three calls in a
// row that another node has answered first. Each of these calls must be answered soon. After that
// suspicion, one such call is enough, until the node has answered. An answer in between restarts
// the count.
func TestHungNodeIsAskedLast(t *testing.T) { synctest.Test(t, testHungNodeIsAskedLast) }

func testHungNodeIsAskedLast(t *testing.T) {
	p := newHedgedPeers(t)
	answerCall := func() { p.call(t, askProcedure, time.Millisecond) }
	overtakeCall := func() (took time.Duration) { return p.call(t, askProcedure, never) }
	expectFirstNode := func(want, when string) {
		t.Helper()
		if got := p.nodesServing(0, nil)[0].Name; got != want {
			t.Fatalf("first node to ask %s: got %s, want %s", when, got, want)
		}
	}

	// Node a answers well.
	for range 500 {
		answerCall()
	}
	delay := p.hedgeDelay("a", askProcedure)
	if delay != minHedgeDelay {
		t.Fatalf("hedge delay after 500 short calls: got %v, want %v", delay, minHedgeDelay)
	}

	// Fewer than three overtaken calls in a row do not matter. The calls after them give back the
	// hedges that they have cost, and lower the hedge delay again.
	for range 10 {
		for range maxOvertaken - 1 {
			if took := overtakeCall(); took > 3*delay {
				t.Fatalf("time of an overtaken call: got %v, want at most %v", took, 3*delay)
			}
			expectFirstNode("a", "after fewer overtaken calls than begin a suspicion")
		}
		for range 101 {
			answerCall()
		}
	}

	// The third one in a row begins a suspicion.
	for i := range maxOvertaken {
		expectFirstNode("a", fmt.Sprintf("after %d overtaken calls", i))
		overtakeCall()
	}
	expectFirstNode("b", fmt.Sprintf("after %d overtaken calls", maxOvertaken))

	// Calls that began before the suspicion do not raise the hedge delay. These take 0.1 s.
	for range 20 {
		overtakeCall()
	}
	if got := p.hedgeDelay("a", askProcedure); got > 2*delay {
		t.Errorf("hedge delay after calls of a suspected node: got %v, want at most %v", got, 2*delay)
	}

	// After the suspicion, one overtaken call begins another one, which is twice as long.
	for _, duration := range []time.Duration{minSuspicion, 2 * minSuspicion} {
		time.Sleep(duration - time.Second/2) //nolint:forbidigo // the clock is synctest's
		expectFirstNode("b", fmt.Sprintf("before the suspicion of %v is over", duration))
		time.Sleep(time.Second / 2) //nolint:forbidigo // the clock is synctest's
		expectFirstNode("a", fmt.Sprintf("after the suspicion of %v is over", duration))
		overtakeCall()
		expectFirstNode("b", fmt.Sprintf("after one overtaken call that follows the suspicion of %v", duration))
	}

	// An answer ends the suspicion.
	answerCall()
	expectFirstNode("a", "after node a has answered")
}

// TestPartitionsShareNodes checks that of two nodes that serve a partition, the one that is asked
// anyway is also asked about that partition, unless it is suspected.
func TestPartitionsShareNodes(t *testing.T) {
	var all, even, odd events.Partitions
	for p := range uint8(4) {
		all.Add(p)
		if p%2 == 0 {
			even.Add(p)
		} else {
			odd.Add(p)
		}
	}
	p := newTestPeers(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: even}, Node{Name: "c", Serves: odd})
	nodesToAsk := func(partitions ...uint8) (names []string) {
		s := &scatter{Peers: p, procedure: askProcedure, partitions: partitions}
		indexes := make([]int, len(partitions))
		for i := range indexes {
			indexes[i] = i
		}
		groups, err := s.assignNodes(indexes, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			names = append(names, g.node.Name)
		}
		return names
	}

	// The first node of partitions 0 and 2 is a, and that of partitions 1 and 3 is c.
	for _, c := range []struct {
		partitions []uint8
		want       []string
	}{
		{[]uint8{0}, []string{"a"}},
		{[]uint8{1}, []string{"c"}},
		{[]uint8{0, 1, 2, 3}, []string{"a"}},
		{[]uint8{1, 0, 3, 2}, []string{"c", "a"}},
	} {
		if got := nodesToAsk(c.partitions...); !slices.Equal(got, c.want) {
			t.Errorf("nodes to ask about partitions %v: got %v, want %v", c.partitions, got, c.want)
		}
	}

	p.suspected["a"] = suspicion{until: time.Now().Add(time.Hour)} // however long the test takes
	want := []string{"b", "c"}
	if got := nodesToAsk(0, 1, 2, 3); !slices.Equal(got, want) {
		t.Errorf("nodes to ask while a is suspected: got %v, want %v", got, want)
	}
}

// TestOrderOfNodesPerPartition checks that the first node to ask differs from partition to
// partition, and that suspected nodes are asked last.
func TestOrderOfNodesPerPartition(t *testing.T) { synctest.Test(t, testOrderOfNodesPerPartition) }

func testOrderOfNodesPerPartition(t *testing.T) {
	all := events.AllPartitions()
	var even events.Partitions
	for i := range events.NumPartitions / 2 {
		even.Add(uint8(2 * i))
	}
	p := newTestPeers(t, Node{Name: "c", Serves: all}, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: even})
	// nodeOrder returns the names of the nodes to ask, one letter each.
	nodeOrder := func(partition uint8, tried ...string) (names string) {
		for _, n := range p.nodesServing(partition, tried) {
			names += n.Name
		}
		return names
	}

	for _, c := range []struct {
		partition uint8
		tried     []string
		want      string
	}{
		{0, nil, "abc"},
		{4, nil, "bca"},
		{1, nil, "ca"},
		{0, []string{"a"}, "bc"},
		{1, []string{"a", "c"}, ""},
	} {
		if got := nodeOrder(c.partition, c.tried...); got != c.want {
			t.Errorf("order of nodes of partition %d, after %v: got %q, want %q", c.partition, c.tried, got, c.want)
		}
	}

	p.recordResult(t.Context(), "a", errors.New("no answer"))
	if got := nodeOrder(0); got != "bca" {
		t.Errorf("order of nodes while a is suspected: got %q, want \"bca\"", got)
	}
	p.recordResult(t.Context(), "b", errors.New("no answer"))
	if got := nodeOrder(0); got != "cab" {
		t.Errorf("order of nodes while a and b are suspected: got %q, want \"cab\"", got)
	}

	for name, s := range p.suspected {
		s.until = time.Now().Add(-time.Second)
		p.suspected[name] = s
	}
	if got := nodeOrder(0); got != "abc" {
		t.Errorf("order of nodes after the suspicions: got %q, want \"abc\"", got)
	}
}

// TestRefusedMemorySaysNothingAboutTheNode checks that an answer for which this process has no
// memory does not count as answered, and neither ends nor begins a suspicion of the node.
func TestRefusedMemorySaysNothingAboutTheNode(t *testing.T) {
	p := newTestPeers(t, Node{Name: "a", Serves: events.AllPartitions()})
	p.suspected["a"] = suspicion{until: time.Now().Add(time.Hour)} // however long the test takes
	noMemory := &apierror.Failure{Code: connect.CodeResourceExhausted, Cause: errNoMemory}
	for _, name := range []string{"a", "b"} {
		if p.recordResult(t.Context(), name, noMemory) {
			t.Errorf("another node is asked after node %s, want none", name)
		}
	}

	if got := p.Calls.OK.Load(); got != 0 {
		t.Errorf("answered calls: got %d, want 0", got)
	}
	if got := p.suspicionRank("a"); got != 1 {
		t.Errorf("suspicion of a, which was suspected before: got %d, want 1", got)
	}
	if got := p.suspicionRank("b"); got != 0 {
		t.Errorf("suspicion of b, which was not suspected before: got %d, want 0", got)
	}
}

// streamProcedure is the path of a streaming method of nodes in these tests.
const streamProcedure = "/stream"

// newStreamHandler returns a handler of streamProcedure. It sends one message and then calls
// afterMessage.
func newStreamHandler(afterMessage func(context.Context)) http.Handler {
	return connect.NewServerStreamHandler(streamProcedure,
		func(ctx context.Context, _ *connect.Request[peerv1.AskRequest], out *connect.ServerStream[peerv1.AskResponse]) error {
			if err := out.Send(&peerv1.AskResponse{Newest: positionAt(1).String()}); err != nil {
				return err
			}
			afterMessage(ctx)
			return nil
		})
}

// TestStreamsDoNotBlockCalls checks that a node still answers calls while it answers as many
// streams as it may answer calls at the same time.
func TestStreamsDoNotBlockCalls(t *testing.T) {
	waitUntilCanceled := func(ctx context.Context) { <-ctx.Done() }
	mux := http.NewServeMux()
	mux.Handle(askProcedure, newAskHandler(answerAs("a", 1)))
	mux.Handle(streamProcedure, newStreamHandler(waitUntilCanceled))
	p := newTestPeers(t, Node{Name: "a", Addr: serveNode(t, "a", mux), Serves: events.AllPartitions()})

	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, maxConnsPerNode)
	var streams sync.WaitGroup
	for range maxConnsPerNode {
		streams.Go(func() {
			err := ForwardStream(ctx, p, 0, streamProcedure, &peerv1.AskRequest{}, func(int64) {}, func(*peerv1.AskResponse) error {
				begun <- struct{}{}
				return nil
			})
			if apierror.Of(err).Code != connect.CodeCanceled {
				t.Errorf("end of a stream: got the error %v, want the code canceled", err)
			}
		})
	}
	for range maxConnsPerNode {
		<-begun
	}

	if got, err := forwardAsk(t, p); err != nil || got != "a" {
		t.Errorf("a call beside %d streams: got the answer of %q and the error %v, want the answer of a", maxConnsPerNode, got, err)
	}
	cancel()
	streams.Wait()
}

// TestSlowClientIsNotTheFaultOfTheNode checks that a node is not suspected if the client does not
// take the parts of a stream.
func TestSlowClientIsNotTheFaultOfTheNode(t *testing.T) {
	handler := newStreamHandler(func(context.Context) {})
	p := newTestPeers(t, Node{Name: "a", Addr: serveNode(t, "a", handler), Serves: events.AllPartitions()})

	errTimeout := errors.New("the client has not read the part in time")
	passToSlowClient := func(*peerv1.AskResponse) error { return errTimeout }
	err := ForwardStream(t.Context(), p, 0, streamProcedure, &peerv1.AskRequest{}, func(int64) {}, passToSlowClient)
	if !errors.Is(err, errTimeout) {
		t.Errorf("ForwardStream: got the error %v, want %v", err, errTimeout)
	}
	if p.suspicionRank("a") != 0 {
		t.Error("the node is suspected, want no suspicion")
	}
	if got := p.Calls.OK.Load(); got != 1 {
		t.Errorf("answered calls: got %d, want 1", got)
	}
	if got := p.Calls.Retried.Load(); got != 0 {
		t.Errorf("calls that were not answered: got %d, want 0", got)
	}
}

func TestErrorNamesThePartitionThatNobodyServes(t *testing.T) {
	t.Parallel()
	t.Run("no node", func(t *testing.T) {
		_, err := forwardAsk(t, newTestPeers(t))
		f := apierror.Of(err)
		if f.Code != connect.CodeUnavailable || f.Reason != skeinv1.Reason_REASON_NOT_HERE {
			t.Errorf("got the code %v and the reason %v, want unavailable and NOT_HERE", f.Code, f.Reason)
		}
		if want := "partition 0 of 256"; !strings.Contains(f.Text, want) {
			t.Errorf("got the text %q, want %q in it", f.Text, want)
		}
	})
	t.Run("a node that cannot be reached", func(t *testing.T) {
		// No process listens at this address.
		unreachable := Node{Name: "unreachable", Addr: "127.0.0.1:1", Serves: events.AllPartitions()}
		_, err := forwardAsk(t, newTestPeers(t, unreachable))
		f := apierror.Of(err)
		if f.Reason != skeinv1.Reason_REASON_NOT_HERE {
			t.Errorf("reason of %v: got %v, want NOT_HERE", err, f.Reason)
		}
		if want := "partition 0 of 256"; !strings.Contains(f.Text, want) {
			t.Errorf("got the text %q, want %q in it", f.Text, want)
		}
		if errors.Unwrap(err) == nil {
			t.Errorf("cause of %v: got none, want the error of the connection", err)
		}
	})
}

// TestErrorsOfTheCallerAreNotRetried checks that an error that any node would return is returned
// unchanged, and that no other node is asked.
func TestErrorsOfTheCallerAreNotRetried(t *testing.T) {
	want := &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Text: "bad",
		Fields: []apierror.Violation{{Field: "page_token", Text: "is none", Reason: skeinv1.Reason_REASON_INVALID_FIELD}},
	}
	all := events.AllPartitions()
	// If node a is slow, node b is asked in addition. It must not answer before a.
	p := newTestPeers(t, startNode(t, "a", all, refuseWith(want)), startNode(t, "b", all, hangUntilCanceled))

	answeredBy, err := forwardAsk(t, p)
	if err == nil {
		t.Fatalf("got the answer of %q, want the error of a", answeredBy)
	}
	got := apierror.Of(err)
	if got.Code != want.Code || got.Reason != want.Reason || got.Text != want.Text {
		t.Errorf("got %v, %v, %q; want %v, %v, %q", got.Code, got.Reason, got.Text, want.Code, want.Reason, want.Text)
	}
	if diff := cmp.Diff(want.Fields, got.Fields); diff != "" {
		t.Errorf("fields of the error (-want +got):\n%s", diff)
	}
	if got := p.Calls.Retried.Load(); got != 0 {
		t.Errorf("calls after which another node was asked: got %d, want 0", got)
	}
}

// requestLog records the requests that each node has received, by the name of the node.
type requestLog struct {
	mu     sync.Mutex
	byNode map[string][]*peerv1.AskRequest
}

// record returns an askFunc that records the requests of a node and answers with answer.
func (l *requestLog) record(name string, answer askFunc) askFunc {
	return func(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		l.mu.Lock()
		l.byNode[name] = append(l.byNode[name], req)
		l.mu.Unlock()
		return answer(ctx, req)
	}
}

// mustParsePartitions returns the partitions that a request is about.
func mustParsePartitions(t *testing.T, req *peerv1.AskRequest) events.Partitions {
	t.Helper()
	partitions, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		t.Fatal(err)
	}
	return partitions
}

// TestRemoteBatchAsksEachNodeOnce checks that a question for all nodes is put to each of them once,
// about partitions that together are those that this node does not hold. If nodes do not answer,
// other nodes are asked about their partitions, once about each.
func TestRemoteBatchAsksEachNodeOnce(t *testing.T) {
	var local, low, high events.Partitions
	for i := range events.NumPartitions {
		switch {
		case i < 100:
			local.Add(uint8(i))
		case i < 180:
			low.Add(uint8(i))
		default:
			high.Add(uint8(i))
		}
	}

	for _, c := range []struct {
		name   string
		broken askFunc // how the first two nodes fail; nil if they do not
	}{
		{"all nodes answer", nil},
		{"nodes do not serve the partitions", refuseWith(NotHereError())},
		{"nodes hang", hangUntilCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			isBroken := c.broken != nil
			requests := requestLog{byNode: map[string][]*peerv1.AskRequest{}}
			answerLow := answerAs("a-low", 7)
			answerHigh := answerAs("b-high", 9)
			wantNewest := uint64(9)
			var nodes []Node
			if isBroken {
				// Node c serves all partitions, and answers instead of the two others.
				answerLow = c.broken
				answerHigh = c.broken
				wantNewest = 8
				nodes = append(nodes, startNode(t, "c", events.AllPartitions(), requests.record("c", answerAs("c", 8))))
			}
			nodes = append(nodes,
				startNode(t, "a-low", low, requests.record("a-low", answerLow)),
				startNode(t, "b-high", high, requests.record("b-high", answerHigh)))
			p := newTestPeers(t, nodes...)
			if isBroken {
				// So c is asked after the others, however long the test takes.
				p.suspected["c"] = suspicion{until: time.Now().Add(time.Hour)}
			}

			// Before Fetch, the answers to both questions are unknown.
			batch := NewRemoteBatch(p, local, positionAt(3))
			if parts, known := batch.Candidates("ann", 1, nil, 5); known || len(parts) > 0 {
				t.Fatalf("Candidates before Fetch: got %v (known: %t), want no answer", parts, known)
			}
			if !batch.Unresolved() {
				t.Fatal("Unresolved before Fetch: got false, want true")
			}
			if _, known := batch.Reactions("ann", "", nil, 5); known {
				t.Fatal("Reactions before Fetch: the answer is known, want no answer")
			}

			if err := batch.Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			parts, known := batch.Candidates("ann", 1, nil, 5)
			if !known || len(parts) != 2 {
				t.Errorf("Candidates after Fetch: got %d parts (known: %t), want 2", len(parts), known)
			}
			if batch.Unresolved() {
				t.Error("Unresolved after Fetch: got true, want false")
			}
			if got := batch.Newest().Seq; got != wantNewest {
				t.Errorf("newest position: got the sequence %d, want %d", got, wantNewest)
			}

			// Both questions are in one request. Node c gets one instead of each broken node. A node
			// that hangs need not have received its request before c has answered, so the request
			// may arrive now.
			requests.mu.Lock()
			defer requests.mu.Unlock()
			wantAsked := []string{"a-low", "b-high"}
			if isBroken {
				wantAsked = []string{"c"}
			}
			for _, name := range wantAsked {
				if len(requests.byNode[name]) == 0 {
					t.Errorf("requests to %s: got none, want some", name)
				}
			}
			for name, reqs := range requests.byNode {
				wantRequests := 1
				if name == "c" {
					wantRequests = 2
				}
				if len(reqs) != wantRequests {
					t.Errorf("requests to %s: got %d, want %d", name, len(reqs), wantRequests)
				}
				for _, req := range reqs {
					if len(req.GetQuestions()) != 2 || req.GetAtLeast() != positionAt(3).String() {
						t.Errorf("request to %s: got %v, want 2 questions at least at %v", name, req, positionAt(3))
					}
				}
			}

			// The requests that were answered are about each partition once.
			var askedAbout events.Partitions
			partitionCount := 0
			for name, reqs := range requests.byNode {
				if isBroken && name != "c" {
					continue
				}
				for _, req := range reqs {
					partitions := mustParsePartitions(t, req)
					partitionCount += partitions.Len()
					askedAbout.AddSet(&partitions)
				}
			}
			want := events.NumPartitions - local.Len()
			if partitionCount != want || askedAbout.Len() != want {
				t.Errorf("partitions that nodes were asked about: got %d, of which %d are different; want all %d that are not local, once each",
					partitionCount, askedAbout.Len(), want)
			}
		})
	}
}

// TestIncompleteAnswerIsPassedOver checks that the next node is asked if a node does not answer all
// questions.
func TestIncompleteAnswerIsPassedOver(t *testing.T) {
	answerNothing := func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		return &peerv1.AskResponse{Newest: positionAt(5).String()}, nil
	}
	all := events.AllPartitions()
	p := newTestPeers(t, startNode(t, "a", all, answerNothing), startNode(t, "b", all, answerAs("b", 4)))

	batch := NewRemoteBatch(p, events.Partitions{}, positionAt(3))
	batch.Candidates("ann", 1, nil, 5)
	if err := batch.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts, known := batch.Candidates("ann", 1, nil, 5)
	if !known {
		t.Errorf("Candidates: got %v (known: %t), want the answer of b", parts, known)
	}
	if got := batch.Newest().Seq; got != 4 {
		t.Errorf("newest position: got the sequence %d, want that of b, which is 4", got)
	}
}
