package peers

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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
	return Node{Name: name, Addr: serveNode(t, name, newAskHandler(answer)), Serves: serves}
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

// hangUntilCanceled is an askFunc that does not answer.
func hangUntilCanceled(ctx context.Context, _ *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
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

// TestNextNodeIsAskedWhenOneFails demands that the next node is asked if a node does not answer, or
// does not serve the partition. A node that did not answer is then suspected, and one that does not
// serve the partition is not.
func TestNextNodeIsAskedWhenOneFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		first           askFunc
		wantIsSuspected bool
	}{
		{"hangs", hangUntilCanceled, true},
		{"not here", refuseWith(NotHereError()), false},
		{"breaks", func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) { panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := events.AllPartitions()
			p := newTestPeers(t, startNode(t, "a", all, c.first), startNode(t, "b", all, answerAs("b", 1)))
			p.hedgeCredit = answersPerHedge - 1 // not enough for a hedge, so that only the failure of node a counts
			if got := p.nodesServing(0, nil)[0].Name; got != "a" {
				t.Fatalf("the first node to ask is %s, expected a", got)
			}
			if got, err := forwardAsk(t, p); err != nil || got != "b" {
				t.Fatalf("got an answer of %q, %v; expected one of b", got, err)
			}
			p.mu.Lock()
			_, isSuspected := p.suspected["a"]
			p.mu.Unlock()
			if isSuspected != c.wantIsSuspected {
				t.Errorf("node a is suspected: %v, expected %v", isSuspected, c.wantIsSuspected)
			}
		})
	}
}

// TestSlowNodeIsHedged demands that while a node is slow, another one is asked in addition. The
// first answer, or the first error that is the caller's fault, ends the wait for the other node.
func TestSlowNodeIsHedged(t *testing.T) {
	bad := &apierror.Failure{Code: connect.CodeInvalidArgument, Text: "bad"}
	type answer struct {
		after time.Duration
		err   error
	}
	for _, c := range []struct {
		name       string
		a, b       answer // of the nodes a and b
		credit     int    // the number of hedges that may be made
		want       string // the name of the node whose answer is kept
		wantErr    error
		wantTime   time.Duration
		wantHedges uint64
		wantLast   string // the node that is asked last after the call
	}{
		{"soon", answer{49 * time.Millisecond, nil}, answer{}, 1, "a", nil, 49 * time.Millisecond, 0, "b"},
		{"overtaken", answer{never, nil}, answer{time.Millisecond, nil}, 1, "b", nil, 51 * time.Millisecond, 1, "b"},
		{"not overtaken", answer{60 * time.Millisecond, nil}, answer{never, nil}, 1, "a", nil, 60 * time.Millisecond, 1, "b"},
		{"the other has a caller's error", answer{never, nil}, answer{0, bad}, 1, "", bad, 50 * time.Millisecond, 1, "b"},
		{"a late caller's error", answer{60 * time.Millisecond, bad}, answer{never, nil}, 1, "", bad, 60 * time.Millisecond, 1, "b"},
		{"the other one refuses", answer{2 * time.Second, nil}, answer{0, NotHereError()}, 1, "a", nil, 2 * time.Second, 1, "b"},
		{"no hedge is left", answer{never, nil}, answer{time.Millisecond, nil}, 0, "b", nil, 1001 * time.Millisecond, 0, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := events.AllPartitions()
				p := newTestPeers(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = c.credit * answersPerHedge
				got := ""
				start := time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
					answer := c.a
					if n.Name == "b" {
						answer = c.b
					}
					if err := wait.For(ctx, answer.after); err != nil {
						return nil, err
					}
					return func() { got += n.Name }, answer.err
				})
				if got != c.want || !errors.Is(err, c.wantErr) {
					t.Errorf("got the answer of %q, %v; expected that of %q, %v", got, err, c.want, c.wantErr)
				}
				if took := time.Since(start); took != c.wantTime {
					t.Errorf("the call took %v, expected %v", took, c.wantTime)
				}
				if hedges := p.Calls.Hedged.Load(); hedges != c.wantHedges {
					t.Errorf("%d hedges, expected %d", hedges, c.wantHedges)
				}
				if last := p.nodesServing(0, nil)[1].Name; last != c.wantLast {
					t.Errorf("%s is asked last now, expected %s", last, c.wantLast)
				}
				if failed := p.Calls.Failed.Load(); failed > 0 {
					t.Errorf("%d failed calls were counted, expected none", failed)
				}
			})
		})
	}
}

// TestUnreachableNodesAreRetried demands that a slow node has time to answer if no other node has
// answered, and that nodes that could not be reached are asked again a few times.
func TestUnreachableNodesAreRetried(t *testing.T) {
	errRefused := errors.New("connection refused")
	slow := func(ctx context.Context, _ int) error { return wait.For(ctx, 1500*time.Millisecond) }
	breaks := func(times int) func(context.Context, int) error {
		return func(_ context.Context, before int) error {
			if before < times {
				return errRefused
			}
			return nil
		}
	}
	for _, c := range []struct {
		name      string
		a         func(ctx context.Context, before int) error // before is the number of earlier calls
		want      string
		wantCalls int
		wantTime  time.Duration
	}{
		{"slow, and the other one is gone", slow, "a", 1, 1500 * time.Millisecond},
		{"a broken connection", breaks(1), "a", 2, 100 * time.Millisecond},
		{"it comes back", breaks(3), "a", 4, 1300 * time.Millisecond},
		{"gone as well", breaks(4), "", 4, 1300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := events.AllPartitions()
				p := newTestPeers(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = 0
				got := ""
				calls := 0
				start := time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
					if n.Name == "b" {
						return nil, errRefused
					}
					calls++
					return func() { got += n.Name }, c.a(ctx, calls-1)
				})
				if got != c.want || (err != nil) != (c.want == "") {
					t.Errorf("got the answer of %q, %v; expected that of %q", got, err, c.want)
				}
				if took := time.Since(start); calls != c.wantCalls || took != c.wantTime {
					t.Errorf("%d calls of a in %v, expected %d in %v", calls, took, c.wantCalls, c.wantTime)
				}
			})
		})
	}
}

// TestFailedCallIsLoggedWithItsCause demands that a node logs once per failureLogInterval that it
// reaches no other node, with what happened to the connection.
func TestFailedCallIsLoggedWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPeers(t, Node{Name: "a", Serves: events.AllPartitions()})
		var log strings.Builder
		p.logger = slog.New(slog.NewTextHandler(&log, nil))
		call := func() {
			err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(context.Context, *Node, []int) (func(), error) {
				return nil, errors.New("connection refused")
			})
			if got := apierror.Of(err).Reason; got != skeinv1.Reason_REASON_NOT_HERE {
				t.Fatalf("the reason of %v is %v, expected NOT_HERE", err, got)
			}
		}
		for _, expected := range []int{1, 1, 2} {
			call()
			if got := strings.Count(log.String(), `cause="connection refused"`); got != expected {
				t.Fatalf("the cause was logged %d times, expected %d:\n%s", got, expected, log.String())
			}
			if expected == 1 {
				<-time.After(failureLogInterval / 2) // by the clock of synctest
			}
		}
	})
}

// hedgedNode is the node a, which answers each call after a time that the test gives. Hedges go to
// the node b, which answers in a millisecond.
type hedgedNode struct {
	*Peers
	a Node
}

func newHedgedNode(t *testing.T) *hedgedNode {
	all := events.AllPartitions()
	a := Node{Name: "a", Serves: all}
	return &hedgedNode{newTestPeers(t, a, Node{Name: "b", Serves: all}), a}
}

// never is longer than any test waits for an answer.
const never = time.Hour

// call makes a call that node a answers after some time. It returns how long the call took.
func (p *hedgedNode) call(t *testing.T, procedure string, after time.Duration) time.Duration {
	t.Helper()
	s := &scatter{p.Peers, procedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
		if n.Name == "b" {
			return func() {}, wait.For(ctx, time.Millisecond)
		}
		return func() {}, wait.For(ctx, after)
	}}
	start := time.Now()
	if _, err := s.askGroup(t.Context(), &nodeGroup{p.a, []int{0}, true}, nil); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestHedgeDelayFollowsTheLatencyOfTheMethod demands that a hedge is made after twice the time
// within which a node answers 19 of 20 calls of a method, within limits. Calls that a hedge has
// overtaken count as slower ones. In the long run at most a twentieth of the calls has hedges.
func TestHedgeDelayFollowsTheLatencyOfTheMethod(t *testing.T) {
	for _, c := range []struct {
		name        string
		took        func(*rand.Rand) time.Duration
		least, most time.Duration
	}{
		{"at once", func(*rand.Rand) time.Duration { return 0 }, minHedgeDelay, minHedgeDelay},
		{"10 ms", func(*rand.Rand) time.Duration { return 10 * time.Millisecond }, 19 * time.Millisecond, 24 * time.Millisecond},
		{"up to 10 ms", func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(10 * time.Millisecond))) }, 16 * time.Millisecond, 22 * time.Millisecond},
		{"too long", func(*rand.Rand) time.Duration { return 2 * maxHedgeDelay }, maxHedgeDelay, maxHedgeDelay},
		{"a tenth is long", func(r *rand.Rand) time.Duration {
			if r.IntN(10) == 0 {
				return 20 * time.Millisecond
			}
			return time.Millisecond
		}, 30 * time.Millisecond, maxHedgeDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 3000
				p := newHedgedNode(t)
				rng := rand.New(rand.NewPCG(1, 2))
				for range calls {
					p.call(t, "often", c.took(rng))
				}
				before := p.Calls.Hedged.Load()
				for range calls {
					p.call(t, "often", c.took(rng))
				}
				if got := p.hedgeDelay("a", "often"); got < c.least || got > c.most {
					t.Errorf("a hedge is made after %v, expected %v to %v", got, c.least, c.most)
				}
				if hedged := p.Calls.Hedged.Load() - before; hedged > calls/answersPerHedge {
					t.Errorf("%d of %d calls had hedges, expected at most one in %d", hedged, calls, answersPerHedge)
				}
				if got := p.hedgeDelay("a", "seldom"); got != maxHedgeDelay {
					t.Errorf("a hedge of another method is made after %v, expected %v", got, maxHedgeDelay)
				}
			})
		})
	}
}

// TestHungNodeIsAskedLast demands that a node that answered well is suspected after three calls in
// a row that another node has answered first. Each of these calls must be answered soon. After that
// suspicion, one such call is enough, until the node has answered. An answer in between restarts
// the count.
func TestHungNodeIsAskedLast(t *testing.T) { synctest.Test(t, testHungNodeIsAskedLast) }

func testHungNodeIsAskedLast(t *testing.T) {
	p := newHedgedNode(t)
	for range 500 {
		p.call(t, askProcedure, time.Millisecond)
	}
	delay := p.hedgeDelay("a", askProcedure)
	if delay != minHedgeDelay {
		t.Fatalf("a hedge is made after %v, expected %v", delay, minHedgeDelay)
	}
	firstNode := func() string { return p.nodesServing(0, nil)[0].Name }

	// Fewer than three overtaken calls in a row do not matter.
	for range 10 {
		for range maxOvertaken - 1 {
			if took := p.call(t, askProcedure, never); took > 3*delay || firstNode() != "a" {
				t.Fatalf("a call took %v, expected at most %v; the first node is %s, expected a", took, 3*delay, firstNode())
			}
		}
		p.call(t, askProcedure, time.Millisecond)
		for range 100 {
			p.call(t, askProcedure, time.Millisecond)
		}
	}

	// The third one in a row begins a suspicion.
	for i := range maxOvertaken {
		if firstNode() != "a" {
			t.Fatalf("after %d overtaken calls the first node is %s, expected a", i, firstNode())
		}
		p.call(t, askProcedure, never)
	}
	if firstNode() != "b" {
		t.Fatalf("after %d overtaken calls the first node is %s, expected b", maxOvertaken, firstNode())
	}

	// Calls that began before the suspicion do not raise the hedge delay. These take 0.1 s.
	for range 20 {
		p.call(t, askProcedure, never)
	}
	if after := p.hedgeDelay("a", askProcedure); after > 2*delay {
		t.Errorf("calls of a suspected node raised the hedge delay to %v, expected at most %v", after, 2*delay)
	}

	// After the suspicion, one overtaken call begins another one, which is twice as long.
	for _, duration := range []time.Duration{minSuspicion, 2 * minSuspicion} {
		time.Sleep(duration - time.Second/2) //nolint:forbidigo // the clock is synctest's
		if firstNode() != "b" {
			t.Errorf("a is asked first before its suspicion of %v is over, expected b", duration)
		}
		time.Sleep(time.Second / 2) //nolint:forbidigo // the clock is synctest's
		if firstNode() != "a" {
			t.Errorf("b is asked first after the suspicion of a of %v is over, expected a", duration)
		}
		p.call(t, askProcedure, never)
		if firstNode() != "b" {
			t.Errorf("a is asked first after one overtaken call, although it was suspected for %v, expected b", duration)
		}
	}

	p.call(t, askProcedure, time.Millisecond)
	if firstNode() != "a" {
		t.Error("b is asked first although a has answered, expected a")
	}
}

// TestPartitionsShareNodes demands that of two nodes that serve a partition, the one that is asked
// anyway is also asked about that partition, unless it is suspected.
func TestPartitionsShareNodes(t *testing.T) {
	var both, even, odd events.Partitions
	for p := range uint8(4) {
		both.Add(p)
	}
	even.Add(0)
	even.Add(2)
	odd.Add(1)
	odd.Add(3)
	p := newTestPeers(t, Node{Name: "a", Serves: both}, Node{Name: "b", Serves: even}, Node{Name: "c", Serves: odd})
	askedNodes := func(partitions ...uint8) (names []string) {
		s := &scatter{p, askProcedure, partitions, nil}
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
	for _, c := range []struct {
		partitions []uint8
		want       []string
	}{
		{[]uint8{0}, []string{"a"}},
		{[]uint8{1}, []string{"c"}},
		{[]uint8{0, 1, 2, 3}, []string{"a"}},
		{[]uint8{1, 0, 3, 2}, []string{"c", "a"}},
	} {
		if got := askedNodes(c.partitions...); !slices.Equal(got, c.want) {
			t.Errorf("nodes asked about partitions %v: got %v, expected %v", c.partitions, got, c.want)
		}
	}
	p.suspect("a")
	if got := askedNodes(0, 1, 2, 3); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("nodes asked while a is suspected: got %v, expected b and c", got)
	}
}

// TestOrderOfNodesPerPartition demands that the first node to ask differs from partition to
// partition, and that suspected nodes are asked last.
func TestOrderOfNodesPerPartition(t *testing.T) { synctest.Test(t, testOrderOfNodesPerPartition) }

func testOrderOfNodesPerPartition(t *testing.T) {
	var even events.Partitions
	for i := range events.NumPartitions / 2 {
		even.Add(uint8(2 * i))
	}
	all := events.AllPartitions()
	p := newTestPeers(t, Node{Name: "c", Serves: all}, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: even})
	names := func(partition uint8, tried ...string) (names string) {
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
		if got := names(c.partition, c.tried...); got != c.want {
			t.Errorf("order of nodes of partition %d, after %v: got %q, expected %q", c.partition, c.tried, got, c.want)
		}
	}

	p.recordResult(t.Context(), "a", errors.New("no answer"))
	if got := names(0); got != "bca" {
		t.Errorf("order of nodes with a suspected: got %s, expected bca", got)
	}
	p.recordResult(t.Context(), "b", errors.New("no answer"))
	if got := names(0); got != "cab" {
		t.Errorf("order of nodes with a and b suspected: got %s, expected cab", got)
	}
	for name, s := range p.suspected {
		s.until = time.Now().Add(-time.Second)
		p.suspected[name] = s
	}
	if got := names(0); got != "abc" {
		t.Errorf("order of nodes after the suspicions: got %s, expected abc", got)
	}
}

// TestRefusedMemorySaysNothingAboutTheNode demands that an answer for which this process has no
// memory does not count as answered, and neither ends nor begins a suspicion of the node.
func TestRefusedMemorySaysNothingAboutTheNode(t *testing.T) {
	p := newTestPeers(t, Node{Name: "a", Serves: events.AllPartitions()})
	p.suspect("a")
	for _, name := range []string{"a", "b"} {
		if p.recordResult(t.Context(), name, &apierror.Failure{Code: connect.CodeResourceExhausted, Cause: errNoMemory}) {
			t.Errorf("node %s: another node is asked, expected none", name)
		}
	}
	if n := p.Calls.OK.Load(); n != 0 {
		t.Errorf("got %d answered calls, expected 0", n)
	}
	if a, b := p.suspicionRank("a"), p.suspicionRank("b"); a != 1 || b != 0 {
		t.Errorf("got suspicions %d of a and %d of b, expected 1 and 0", a, b)
	}
}

// TestStreamsDoNotBlockCalls demands that a node still answers calls while it answers as many
// streams as it may answer calls at the same time.
func TestStreamsDoNotBlockCalls(t *testing.T) {
	const procedure = "/stream"
	mux := http.NewServeMux()
	mux.Handle(askProcedure, newAskHandler(answerAs("a", 1)))
	mux.Handle(procedure, connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, _ *connect.Request[peerv1.AskRequest], out *connect.ServerStream[peerv1.AskResponse]) error {
			if err := out.Send(&peerv1.AskResponse{Newest: positionAt(1).String()}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}))
	p := newTestPeers(t, Node{Name: "a", Addr: serveNode(t, "a", mux), Serves: events.AllPartitions()})
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, maxConnsPerNode)
	var streams sync.WaitGroup
	for range maxConnsPerNode {
		streams.Go(func() {
			err := ForwardStream(ctx, p, 0, procedure, &peerv1.AskRequest{}, func(int64) {}, func(*peerv1.AskResponse) error {
				begun <- struct{}{}
				return nil
			})
			if apierror.Of(err).Code != connect.CodeCanceled {
				t.Errorf("a stream ended with %v, expected that it was canceled", err)
			}
		})
	}
	for range maxConnsPerNode {
		<-begun
	}
	if got, err := forwardAsk(t, p); err != nil || got != "a" {
		t.Errorf("a call beside %d streams: got the answer of %q, %v; expected that of a", maxConnsPerNode, got, err)
	}
	cancel()
	streams.Wait()
}

// TestSlowClientIsNotTheFaultOfTheNode demands that a node is not suspected if the client does not
// take the parts of a stream.
func TestSlowClientIsNotTheFaultOfTheNode(t *testing.T) {
	const procedure = "/stream"
	handler := connect.NewServerStreamHandler(procedure,
		func(_ context.Context, _ *connect.Request[peerv1.AskRequest], out *connect.ServerStream[peerv1.AskResponse]) error {
			return out.Send(&peerv1.AskResponse{Newest: positionAt(1).String()})
		})
	p := newTestPeers(t, Node{Name: "a", Addr: serveNode(t, "a", handler), Serves: events.AllPartitions()})

	errTimeout := errors.New("the client has not read the part in time")
	err := ForwardStream(t.Context(), p, 0, procedure, &peerv1.AskRequest{}, func(int64) {},
		func(*peerv1.AskResponse) error { return errTimeout })
	if !errors.Is(err, errTimeout) {
		t.Errorf("got the error %v, expected %v", err, errTimeout)
	}
	if p.suspicionRank("a") != 0 {
		t.Error("the node is suspected, expected no suspicion")
	}
	if ok, retried := p.Calls.OK.Load(), p.Calls.Retried.Load(); ok != 1 || retried != 0 {
		t.Errorf("got %d answered and %d unanswered calls, expected 1 and 0", ok, retried)
	}
}

func TestErrorNamesThePartitionThatNobodyServes(t *testing.T) {
	t.Run("no node", func(t *testing.T) {
		_, err := forwardAsk(t, newTestPeers(t))
		f := apierror.Of(err)
		if f.Code != connect.CodeUnavailable || f.Reason != skeinv1.Reason_REASON_NOT_HERE {
			t.Errorf("got %v, %v; expected unavailable, NOT_HERE", f.Code, f.Reason)
		}
		if want := "partition 0 of 256"; !strings.Contains(f.Text, want) {
			t.Errorf("got the text %q, expected it to name %s", f.Text, want)
		}
	})
	t.Run("a node that cannot be reached", func(t *testing.T) {
		gone := startNode(t, "gone", events.AllPartitions(), hangUntilCanceled)
		gone.Addr = "127.0.0.1:1" // no process listens there
		_, err := forwardAsk(t, newTestPeers(t, gone))
		if f := apierror.Of(err); f.Reason != skeinv1.Reason_REASON_NOT_HERE || errors.Unwrap(err) == nil {
			t.Errorf("got %v, %v with the cause %v; expected NOT_HERE with a cause", f.Reason, err, errors.Unwrap(err))
		}
	})
}

// TestErrorsOfTheCallerAreNotRetried demands that an error that any node would return is returned
// unchanged, and that no other node is asked.
func TestErrorsOfTheCallerAreNotRetried(t *testing.T) {
	want := &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Text: "bad",
		Fields: []apierror.Violation{{Field: "page_token", Text: "is none", Reason: skeinv1.Reason_REASON_INVALID_FIELD}},
	}
	all := events.AllPartitions()
	p := newTestPeers(t, startNode(t, "a", all, refuseWith(want)), startNode(t, "b", all, answerAs("b", 1)))
	_, err := forwardAsk(t, p)
	f := apierror.Of(err)
	if f.Code != want.Code || f.Reason != want.Reason || f.Text != want.Text {
		t.Errorf("got %v, %v, %q; expected %v, %v, %q", f.Code, f.Reason, f.Text, want.Code, want.Reason, want.Text)
	}
	if diff := cmp.Diff(want.Fields, f.Fields); diff != "" {
		t.Errorf("fields of the error (-want +got):\n%s", diff)
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

// TestRemoteBatchAsksEachNodeOnce demands that a question for all nodes is put to each of them
// once, about partitions that together are those that this node does not hold. If nodes do not
// answer, other nodes are asked about their partitions, once about each.
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
	}{{"well", nil}, {"not here", refuseWith(NotHereError())}, {"slow", hangUntilCanceled}} {
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

			r := NewRemoteBatch(p, local, positionAt(3))
			if parts, known := r.Candidates("ann", 1, nil, 5); known || len(parts) > 0 || !r.Unresolved() {
				t.Fatalf("before Fetch: got the parts %v (known: %v), expected a pending question", parts, known)
			}
			if _, known := r.Reactions("ann", "", nil, 5); known {
				t.Fatal("the answer to Reactions is known before Fetch")
			}
			if err := r.Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			parts, known := r.Candidates("ann", 1, nil, 5)
			if !known || r.Unresolved() {
				t.Errorf("after Fetch: known is %v, expected true; Unresolved is %v, expected false", known, r.Unresolved())
			}
			if len(parts) != 2 || r.Newest().Seq != wantNewest {
				t.Errorf("got %d parts, the newest at %v; expected 2 parts, the newest at sequence %d", len(parts), r.Newest(), wantNewest)
			}

			for name, reqs := range requests.byNode {
				wantRequests := 1
				if name == "c" {
					wantRequests = 2 // one instead of each broken node
				}
				if len(reqs) != wantRequests || len(reqs[0].GetQuestions()) != 2 || reqs[0].GetAtLeast() != positionAt(3).String() {
					t.Errorf("%s got the requests %v, expected %d with 2 questions at or after %v", name, reqs, wantRequests, positionAt(3))
				}
			}

			// The requests that were answered are about each partition once.
			var union events.Partitions
			count := 0
			for name, reqs := range requests.byNode {
				if isBroken && name != "c" {
					continue
				}
				for _, req := range reqs {
					partitions, err := events.ParsePartitions(req.GetPartitions())
					if err != nil {
						t.Fatal(err)
					}
					count += partitions.Len()
					union.AddSet(&partitions)
				}
			}
			if count != events.NumPartitions-local.Len() || union.Len() != count {
				t.Errorf("the nodes were asked about %d partitions, %d of them different; expected all %d that are not local, once each",
					count, union.Len(), events.NumPartitions-local.Len())
			}
		})
	}
}

// TestIncompleteAnswerIsPassedOver demands that the next node is asked if a node does not answer
// all questions.
func TestIncompleteAnswerIsPassedOver(t *testing.T) {
	all := events.AllPartitions()
	empty := func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		return &peerv1.AskResponse{Newest: positionAt(5).String()}, nil
	}
	p := newTestPeers(t, startNode(t, "a", all, empty), startNode(t, "b", all, answerAs("b", 4)))
	r := NewRemoteBatch(p, events.Partitions{}, positionAt(3))
	r.Candidates("ann", 1, nil, 5)
	if err := r.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if parts, known := r.Candidates("ann", 1, nil, 5); !known || r.Newest().Seq != 4 {
		t.Errorf("got %v (known: %v) at %v, expected the answer of b at sequence 4", parts, known, r.Newest())
	}
}
