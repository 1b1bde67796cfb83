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

type answerer = func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error)

// listening is a node that answers with a function.
func listening(t *testing.T, name string, serves events.Partitions, answer answerer) Node {
	t.Helper()
	return Node{Name: name, Addr: serveNode(t, name, answering(answer)), Serves: serves}
}

// testLog is the log of all nodes here, and testKeys are their keys.
var (
	testLog  = events.LogID{1}
	testKeys = pagetoken.DefaultKeyRing(testLog)
)

// serveNode serves a handler as a node that proves its answers, and returns its address.
func serveNode(t *testing.T, name string, h http.Handler) (addr string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	addr = srv.Listener.Addr().String()
	srv.Config.Handler = NewCredentials(testKeys, testLog, name, addr).Protect(h, 1<<20)
	srv.Start()
	t.Cleanup(srv.Close)
	return addr
}

func answering(answer answerer) http.Handler {
	return connect.NewUnaryHandler(askProcedure,
		func(ctx context.Context, req *connect.Request[peerv1.AskRequest]) (*connect.Response[peerv1.AskResponse], error) {
			res, err := answer(ctx, req.Msg)
			if err != nil {
				return nil, apierror.Of(err).ConnectError()
			}
			return connect.NewResponse(res), nil
		})
}

// position is one of some log.
func position(seq uint64) events.Position {
	return events.Position{Log: [4]byte{1}, Epoch: 1, Seq: seq}
}

// saying answers each question with an item that is named after the node.
func saying(name string, seq uint64) answerer {
	return func(_ context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		res := &peerv1.AskResponse{Newest: position(seq).String()}
		for range req.GetQuestions() {
			res.Answers = append(res.Answers, &peerv1.Answer{Entries: []*peerv1.Entry{{Item: name}}})
		}
		return res, nil
	}
}

func hanging(ctx context.Context, _ *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func refusing(err error) answerer {
	return func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) { return nil, err }
}

func peersOf(t *testing.T, nodes ...Node) *Peers {
	t.Helper()
	p := New(Options{
		Nodes: func() []Node { return nodes }, Keys: testKeys, Log: testLog, Logger: slog.New(slog.DiscardHandler),
		Bytes: admission.NewBudget(admission.Class{Name: "bytes", Limit: 1 << 30, CallerLimit: 1 << 29}),
	})
	t.Cleanup(p.Close)
	return p
}

func forward(t *testing.T, p *Peers) (string, error) {
	t.Helper()
	req := &peerv1.AskRequest{Questions: []*peerv1.Question{{}}}
	res, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, 0, askProcedure, req)
	if err != nil {
		return "", err
	}
	return res.GetAnswers()[0].GetEntries()[0].GetItem(), nil
}

// If a node gives no answer, or does not serve the partition, the next node that serves it is asked. A node that gave no answer is then
// suspected, and one that does not serve the partition is not.
func TestNextNodeIsAskedWhenOneFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		first  answerer
		silent bool
	}{
		{"hangs", hanging, true},
		{"not here", refusing(NotHereError()), false},
		{"breaks", func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) { panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := events.AllPartitions()
			p := peersOf(t, listening(t, "a", all, c.first), listening(t, "b", all, saying("b", 1)))
			p.hedgeCredit = answersPerHedge - 1 // see TestSlowNodeIsHedged
			if got := p.nodesServing(0, nil)[0].Name; got != "a" {
				t.Fatalf("%s is asked first", got)
			}
			if got, err := forward(t, p); err != nil || got != "b" {
				t.Fatalf("%q, %v", got, err)
			}
			p.mu.Lock()
			_, silent := p.suspected["a"]
			p.mu.Unlock()
			if silent != c.silent {
				t.Errorf("it is among the silent ones: %v", silent)
			}
		})
	}
}

// While a node is slow, another one is asked in addition. The first answer, or error of the caller, ends the wait for the other node.
func TestSlowNodeIsHedged(t *testing.T) {
	bad := &apierror.Failure{Code: connect.CodeInvalidArgument, Text: "bad"}
	type answer struct {
		after time.Duration
		err   error
	}
	for _, c := range []struct {
		name   string
		a, b   answer
		spare  int // hedges
		want   string
		err    error
		took   time.Duration
		hedged uint64
		last   string
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
				p := peersOf(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = c.spare * answersPerHedge
				got, began := "", time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
					of := c.a
					if n.Name == "b" {
						of = c.b
					}
					if err := wait.For(ctx, of.after); err != nil {
						return nil, err
					}
					return func() { got += n.Name }, of.err
				})
				if got != c.want || !errors.Is(err, c.err) || time.Since(began) != c.took || p.Calls.Hedged.Load() != c.hedged {
					t.Errorf("%q, %v after %v, %d hedged", got, err, time.Since(began), p.Calls.Hedged.Load())
				}
				if last := p.nodesServing(0, nil)[1].Name; last != c.last || p.Calls.Failed.Load() > 0 {
					t.Errorf("%s is asked last, %d failed", last, p.Calls.Failed.Load())
				}
			})
		})
	}
}

// If no other node has answered, a slow node is waited for, and nodes that could not be reached are asked again for a while.
func TestUnreachableNodesAreRetried(t *testing.T) {
	gone := errors.New("connection refused")
	slow := func(ctx context.Context, _ int) error { return wait.For(ctx, 1500*time.Millisecond) }
	breaks := func(times int) func(context.Context, int) error {
		return func(_ context.Context, before int) error {
			if before < times {
				return gone
			}
			return nil
		}
	}
	for _, c := range []struct {
		name  string
		a     func(ctx context.Context, before int) error
		want  string
		asked int
		took  time.Duration
	}{
		{"slow, and the other one is gone", slow, "a", 1, 1500 * time.Millisecond},
		{"a broken connection", breaks(1), "a", 2, 100 * time.Millisecond},
		{"it comes back", breaks(3), "a", 4, 1300 * time.Millisecond},
		{"gone as well", breaks(4), "", 4, 1300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := events.AllPartitions()
				p := peersOf(t, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: all})
				p.hedgeCredit = 0
				got, asked, began := "", 0, time.Now()
				err := p.Scatter(t.Context(), askProcedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
					if n.Name == "b" {
						return nil, gone
					}
					asked++
					return func() { got += n.Name }, c.a(ctx, asked-1)
				})
				if got != c.want || (err != nil) != (c.want == "") || asked != c.asked || time.Since(began) != c.took {
					t.Errorf("%q, %v after %d calls and %v", got, err, asked, time.Since(began))
				}
			})
		})
	}
}

// TestFailedCallIsLoggedWithItsCause: nodes that know each other from the bucket may not reach each other. The log of a node says so once a
// minute, with what happened to the connection.
func TestFailedCallIsLoggedWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := peersOf(t, Node{Name: "a", Serves: events.AllPartitions()})
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
				time.Sleep(failureLogInterval / 2)
			}
		}
	})
}

// paced has a node answer calls of a method after some time, which may be never; another one answers in a millisecond.
type paced struct {
	*Peers
	a Node
}

func newPaced(t *testing.T) *paced {
	all := events.AllPartitions()
	a := Node{Name: "a", Serves: all}
	return &paced{peersOf(t, a, Node{Name: "b", Serves: all}), a}
}

const never = time.Hour

// call puts a call to a first, and returns how long it took.
func (p *paced) call(t *testing.T, procedure string, after time.Duration) time.Duration {
	t.Helper()
	s := &scatter{p.Peers, procedure, []uint8{0}, func(ctx context.Context, n *Node, _ []int) (func(), error) {
		if n.Name == "b" {
			return func() {}, wait.For(ctx, time.Millisecond)
		}
		return func() {}, wait.For(ctx, after)
	}}
	began := time.Now()
	if _, err := s.askGroup(t.Context(), &nodeGroup{p.a, []int{0}, true}, nil); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// A hedge is made after twice the time within which a node answers 19 of 20 calls of a method, within limits. Calls that a hedge has overtaken
// count as slower ones. In the long run at most a twentieth of the calls has hedges.
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
				p, rng := newPaced(t), rand.New(rand.NewPCG(1, 2))
				for range calls {
					p.call(t, "often", c.took(rng))
				}
				before := p.Calls.Hedged.Load()
				for range calls {
					p.call(t, "often", c.took(rng))
				}
				if got := p.hedgeDelay("a", "often"); got < c.least || got > c.most {
					t.Errorf("it is sent after %v", got)
				}
				if hedged := p.Calls.Hedged.Load() - before; hedged > calls/answersPerHedge {
					t.Errorf("%d hedges of %d calls", hedged, calls)
				}
				if got := p.hedgeDelay("a", "seldom"); got != maxHedgeDelay {
					t.Errorf("it is sent after %v for another method", got)
				}
			})
		})
	}
}

// A node that answered well is suspected after three calls in a row that another node has answered first, each of them soon. After that
// suspicion, one such call is enough, until the node has answered. An answer in between restarts the count.
func TestHungNodeIsAskedLast(t *testing.T) { synctest.Test(t, nodeStandsStill) }

func nodeStandsStill(t *testing.T) {
	p := newPaced(t)
	for range 500 {
		p.call(t, askProcedure, time.Millisecond)
	}
	soon := p.hedgeDelay("a", askProcedure)
	if soon != minHedgeDelay {
		t.Fatalf("it is waited for, %v", soon)
	}
	first := func() string { return p.nodesServing(0, nil)[0].Name }
	for range 10 {
		for range maxOvertaken - 1 {
			if took := p.call(t, askProcedure, never); took > 3*soon || first() != "a" {
				t.Fatalf("a call takes %v, %s is asked first", took, first())
			}
		}
		p.call(t, askProcedure, time.Millisecond)
		for range 100 {
			p.call(t, askProcedure, time.Millisecond)
		}
	}
	for i := range maxOvertaken {
		if first() != "a" {
			t.Fatalf("after %d calls: %s is asked first", i, first())
		}
		p.call(t, askProcedure, never)
	}
	if first() != "b" {
		t.Fatal("it is still asked first")
	}
	for range 20 { // under way: 0.1 s
		p.call(t, askProcedure, never)
	}
	if after := p.hedgeDelay("a", askProcedure); after > 2*soon {
		t.Errorf("it is waited for, %v", after)
	}
	for _, long := range []time.Duration{minSuspicion, 2 * minSuspicion} {
		time.Sleep(long - time.Second/2) //nolint:forbidigo // the clock is synctest's
		if first() != "b" {
			t.Errorf("it is asked first before %v are over", long)
		}
		time.Sleep(time.Second / 2) //nolint:forbidigo // the clock is synctest's
		if first() != "a" {
			t.Errorf("it is asked last after %v", long)
		}
		p.call(t, askProcedure, never)
		if first() != "b" {
			t.Errorf("it is asked first after %v", long)
		}
	}
	p.call(t, askProcedure, time.Millisecond)
	if first() != "a" {
		t.Error("it has answered and is asked last")
	}
}

// If two nodes serve a partition, the one that is asked anyway is asked about it, too, unless it is suspected.
func TestPartitionsShareNodes(t *testing.T) {
	both, even, odd := events.Partitions{}, events.Partitions{}, events.Partitions{}
	for p := range uint8(4) {
		both.Add(p)
	}
	even.Add(0)
	even.Add(2)
	odd.Add(1)
	odd.Add(3)
	p := peersOf(t, Node{Name: "a", Serves: both}, Node{Name: "b", Serves: even}, Node{Name: "c", Serves: odd})
	asks := func(partitions ...uint8) (names []string) {
		s := &scatter{p, askProcedure, partitions, nil}
		of := make([]int, len(partitions))
		for i := range of {
			of[i] = i
		}
		groups, err := s.assignNodes(of, nil, nil)
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
		if got := asks(c.partitions...); !slices.Equal(got, c.want) {
			t.Errorf("partitions %v: asks %v, want %v", c.partitions, got, c.want)
		}
	}
	p.suspect("a")
	if got := asks(0, 1, 2, 3); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("asks %v while a is suspected", got)
	}
}

// The nodes that serve a partition begin with the partition's own first node, and end with those that are suspected.
func TestOrderOfNodesPerPartition(t *testing.T) { synctest.Test(t, serving) }

func serving(t *testing.T) {
	var even events.Partitions
	for i := range events.NumPartitions / 2 {
		even.Add(uint8(2 * i))
	}
	all := events.AllPartitions()
	p := peersOf(t, Node{Name: "c", Serves: all}, Node{Name: "a", Serves: all}, Node{Name: "b", Serves: even})
	names := func(partition uint8, tried ...string) (names string) {
		for _, n := range p.nodesServing(partition, tried) {
			names += n.Name
		}
		return names
	}
	for _, c := range []struct{ got, want string }{
		{names(0), "abc"}, {names(4), "bca"}, {names(1), "ca"}, {names(0, "a"), "bc"}, {names(1, "a", "c"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s, not %s", c.got, c.want)
		}
	}
	p.recordResult(t.Context(), "a", errors.New("no answer"))
	if got := names(0); got != "bca" {
		t.Errorf("with a silent one: %s", got)
	}
	p.recordResult(t.Context(), "b", errors.New("no answer"))
	if got := names(0); got != "cab" {
		t.Errorf("with two silent ones: %s", got)
	}
	for name, s := range p.suspected {
		s.until = time.Now().Add(-time.Second)
		p.suspected[name] = s
	}
	if got := names(0); got != "abc" {
		t.Errorf("later: %s", got)
	}
}

// A node with as many streams as it may have calls under way still answers calls.
func TestStreamsDoNotBlockCalls(t *testing.T) {
	const procedure = "/stream"
	mux := http.NewServeMux()
	mux.Handle(askProcedure, answering(saying("a", 1)))
	mux.Handle(procedure, connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, _ *connect.Request[peerv1.AskRequest], out *connect.ServerStream[peerv1.AskResponse]) error {
			if err := out.Send(&peerv1.AskResponse{Newest: position(1).String()}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}))
	p := peersOf(t, Node{Name: "a", Addr: serveNode(t, "a", mux), Serves: events.AllPartitions()})
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
				t.Error(err)
			}
		})
	}
	for range maxConnsPerNode {
		<-begun
	}
	if got, err := forward(t, p); err != nil || got != "a" {
		t.Errorf("%q, %v", got, err)
	}
	cancel()
	streams.Wait()
}

// The error names a partition that no node serves. If nodes have given a reason, the error is that of the last of them.
func TestErrorNamesThePartitionThatNobodyServes(t *testing.T) {
	_, err := forward(t, peersOf(t))
	f := apierror.Of(err)
	if f.Code != connect.CodeUnavailable || f.Reason != skeinv1.Reason_REASON_NOT_HERE || !strings.Contains(f.Text, "partition 0 of 256") {
		t.Errorf("%v", err)
	}
	gone := listening(t, "gone", events.AllPartitions(), hanging)
	gone.Addr = "127.0.0.1:1" // nobody listens
	if _, err = forward(t, peersOf(t, gone)); apierror.Of(err).Reason != skeinv1.Reason_REASON_NOT_HERE || errors.Unwrap(err) == nil {
		t.Errorf("%v", err)
	}
}

// An error that any node would return is returned unchanged, and no other node is asked.
func TestErrorsOfTheCallerAreNotRetried(t *testing.T) {
	want := &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Text: "bad",
		Fields: []apierror.Violation{{Field: "page_token", Text: "is none", Reason: skeinv1.Reason_REASON_INVALID_FIELD}},
	}
	all := events.AllPartitions()
	p := peersOf(t, listening(t, "a", all, refusing(want)), listening(t, "b", all, saying("b", 1)))
	_, err := forward(t, p)
	if f := apierror.Of(err); f.Code != want.Code || f.Reason != want.Reason || f.Text != want.Text || !slices.Equal(f.Fields, want.Fields) {
		t.Errorf("%+v", f)
	}
}

// asked notes of each node the partitions that it is asked about, and how often.
type asked struct {
	mu sync.Mutex
	by map[string][]*peerv1.AskRequest
}

func (a *asked) noted(name string, answer answerer) answerer {
	return func(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		a.mu.Lock()
		a.by[name] = append(a.by[name], req)
		a.mu.Unlock()
		return answer(ctx, req)
	}
}

// A question for all nodes is put to each of them once, about partitions that together are those that this node does not hold. The partitions
// of nodes that do not answer are asked of other nodes, each once.
func TestRemoteBatchAsksEachNodeOnce(t *testing.T) {
	var here, low, high events.Partitions
	for i := range events.NumPartitions {
		switch {
		case i < 100:
			here.Add(uint8(i))
		case i < 180:
			low.Add(uint8(i))
		default:
			high.Add(uint8(i))
		}
	}
	for _, c := range []struct {
		name   string
		broken answerer
	}{{"well", nil}, {"not here", refusing(NotHereError())}, {"slow", hanging}} {
		t.Run(c.name, func(t *testing.T) {
			broken := c.broken != nil
			a := asked{by: map[string][]*peerv1.AskRequest{}}
			low1, high1 := saying("a-low", 7), saying("b-high", 9)
			nodes := []Node{}
			if broken {
				low1, high1 = c.broken, c.broken
				nodes = append(nodes, listening(t, "c", events.AllPartitions(), a.noted("c", saying("c", 8))))
			}
			nodes = append(nodes, listening(t, "a-low", low, a.noted("a-low", low1)), listening(t, "b-high", high, a.noted("b-high", high1)))
			p := peersOf(t, nodes...)
			if broken {
				p.suspected["c"] = suspicion{until: time.Now().Add(time.Hour)} // it is asked after the others, however long the test takes
			}
			r := NewRemoteBatch(p, here, position(3))
			if parts, known := r.Candidates("ann", 1, nil, 5); known || len(parts) > 0 || !r.Wanting() {
				t.Fatalf("%v, %v", parts, known)
			}
			if _, known := r.Reactions("ann", "", nil, 5); known {
				t.Fatal("known")
			}
			if err := r.Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			parts, known := r.Candidates("ann", 1, nil, 5)
			if !known || r.Wanting() {
				t.Errorf("known %v, wanting %v", known, r.Wanting())
			}
			newest := uint64(9)
			if broken {
				newest = 8
			}
			if len(parts) != 2 || r.Newest().Seq != newest {
				t.Errorf("%d parts at %v", len(parts), r.Newest())
			}
			for name, reqs := range a.by {
				times := 1
				if name == "c" {
					times = 2 // for each of the others
				}
				if len(reqs) != times || len(reqs[0].GetQuestions()) != 2 || reqs[0].GetAtLeast() != position(3).String() {
					t.Errorf("%s is asked %v", name, reqs)
				}
			}
			var union events.Partitions
			count := 0
			for name, reqs := range a.by {
				if broken && name != "c" {
					continue
				}
				for _, req := range reqs {
					of, err := events.ParsePartitions(req.GetPartitions())
					if err != nil {
						t.Fatal(err)
					}
					count += of.Len()
					union.AddSet(&of)
				}
			}
			if count != events.NumPartitions-here.Len() || union.Len() != count {
				t.Errorf("%d partitions, %d of them different", count, union.Len())
			}
		})
	}
}

// A node that answers other questions than it was asked is passed over.
func TestIncompleteAnswerIsPassedOver(t *testing.T) {
	all := events.AllPartitions()
	empty := func(context.Context, *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		return &peerv1.AskResponse{Newest: position(5).String()}, nil
	}
	p := peersOf(t, listening(t, "a", all, empty), listening(t, "b", all, saying("b", 4)))
	r := NewRemoteBatch(p, events.Partitions{}, position(3))
	r.Candidates("ann", 1, nil, 5)
	if err := r.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if parts, known := r.Candidates("ann", 1, nil, 5); !known || r.Newest().Seq != 4 {
		t.Errorf("%v, %v at %v", parts, known, r.Newest())
	}
}
