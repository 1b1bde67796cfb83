package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// twoEndpoints are two listeners of one server: one whose loop answers plain calls, and one whose
// loop passes everything to net/http.
type twoEndpoints struct {
	// loop and netHTTP are the addresses.
	loop, netHTTP string
	// loopConns are the connections of the first listener.
	loopConns *admission.Connections
}

func newTwoEndpoints(t *testing.T, s *Server) *twoEndpoints {
	t.Helper()
	withLoop := s.clientEndpoint()
	withLoop.conns = &admission.Connections{}

	// A loop that knows no methods passes all requests to net/http.
	withoutLoop := s.clientEndpoint()
	withoutLoop.conns = &admission.Connections{}
	withoutLoop.methods = nil

	return &twoEndpoints{loop: serveEndpoint(t, withLoop), netHTTP: serveEndpoint(t, withoutLoop), loopConns: withLoop.conns}
}

// serveEndpoint serves an endpoint until the test ends, and returns its address.
func serveEndpoint(t *testing.T, e *endpoint) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	loop := e.loop(l, e.s.httpServer(e.s, e.conns))
	served := make(chan error, 1)
	go func() { served <- loop.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(loop.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// exchange sends bytes to one of the addresses, and returns the answers.
func exchange(t *testing.T, address, requests string) []string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return http1test.ParseAnswers(http1test.Exchange(t, conn, []byte(requests)))
}

// demandSame fails the test unless both endpoints answer the requests in the same way. It returns
// the answers of the loop.
func (e *twoEndpoints) demandSame(t *testing.T, requests string) []string {
	t.Helper()
	got := exchange(t, e.loop, requests)
	if diff := cmp.Diff(exchange(t, e.netHTTP, requests), got); diff != "" {
		t.Errorf("answers to %.300q (-net/http +loop):\n%s", requests, diff)
	}
	return got
}

// TestLoopAnswersLikeNetHTTP checks that every request is answered as if there were net/http alone,
// whatever comes before and behind it on the connection.
func TestLoopAnswersLikeNetHTTP(t *testing.T) {
	t.Parallel()
	allowHostX := func(o *worldOptions) { o.AllowedHosts = []string{"x"} }
	w := newWorld(t, withSeen, allowHostX)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range 100 {
		evs = append(evs, follow(fmt.Sprint("reader", i), "ann"))
	}
	at := w.publish(evs...)
	w.caughtUp(at)

	current := newTwoEndpoints(t, w.server)
	failing := newTwoEndpoints(t, newFailingServer(t, w, allowHostX))
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	plain := http1test.Request(http1test.MethodPath, "", string(marshal(t, check)))

	// Methods: what they answer, and how they fail.
	check.AtLeast = at
	for _, c := range []struct {
		name      string
		endpoints *twoEndpoints
		procedure string
		// lines are additional lines of the head.
		lines  string
		req    proto.Message
		status string
		// compressed says that the answer is compressed.
		compressed bool
		// byNetHTTP says that the loop passes the call to net/http.
		byNetHTTP bool
	}{
		{
			name: "an answer", endpoints: current, procedure: connectv1.GraphServiceCheckFollowsProcedure,
			req: check, status: "200",
		},
		{
			name: "a short answer is not compressed", endpoints: current, procedure: connectv1.GraphServiceListFollowersProcedure,
			lines: "Accept-Encoding: gzip\r\n", req: &skeinv1.ListFollowersRequest{UserId: "ann", PageSize: 1}, status: "200",
		},
		{
			name: "a long answer is compressed", endpoints: current, procedure: connectv1.GraphServiceListFollowersProcedure,
			lines: "Accept-Encoding: gzip\r\n", req: &skeinv1.ListFollowersRequest{UserId: "ann", PageSize: 100}, status: "200",
			compressed: true,
		},
		{
			name: "an invalid request", endpoints: current, procedure: connectv1.GraphServiceListFollowersProcedure,
			req: &skeinv1.ListFollowersRequest{}, status: "400",
		},
		{
			name: "no projection", endpoints: current, procedure: connectv1.CounterServiceListTrendingProcedure,
			req: &skeinv1.ListTrendingRequest{}, status: "501",
		},
		{
			name: "no time", endpoints: current, procedure: connectv1.GraphServiceCheckFollowsProcedure,
			lines: "Connect-Timeout-Ms: 0\r\n", req: check, status: "504", byNetHTTP: true,
		},
		{
			name: "a position that does not come", endpoints: failing, procedure: connectv1.GraphServiceCheckFollowsProcedure,
			req: check, status: "503",
		},
		{
			name: "a panic", endpoints: failing, procedure: connectv1.GraphServiceListBlockedProcedure,
			lines: "X-Request-Id: a-panic\r\n", req: &skeinv1.ListBlockedRequest{UserId: "ann"}, status: "500",
		},
		{
			name: "an answer that cannot be encoded", endpoints: failing, procedure: connectv1.GraphServiceListMutedProcedure,
			req: &skeinv1.ListMutedRequest{UserId: "ann"}, status: "500",
		},
		{
			name: "a caller who gives up", endpoints: failing, procedure: connectv1.GraphServiceListExcludedBoardsProcedure,
			lines: "Connect-Timeout-Ms: 100\r\n", req: &skeinv1.ListExcludedBoardsRequest{UserId: "ann"}, status: "504",
		},
		{
			name: "a body above the limit", endpoints: failing, procedure: connectv1.GraphServiceListMutualsProcedure,
			req: &skeinv1.ListMutualsRequest{UserId: strings.Repeat("x", 5000)}, status: "400", byNetHTTP: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The connection stays open after the first request, and ends with the second one.
			request := http1test.Request(c.procedure, c.lines, string(marshal(t, c.req)))
			lastRequest := strings.Replace(request, "\r\nHost", "\r\nConnection: close\r\nHost", 1)
			answers := c.endpoints.demandSame(t, request+lastRequest)
			if len(answers) != 2 || !strings.HasPrefix(answers[0], c.status) {
				t.Fatalf("got %q, want two answers with status %s", answers, c.status)
			}
			if compressed := strings.Contains(answers[0], "Content-Encoding:[gzip]"); compressed != c.compressed {
				t.Errorf("answer is compressed: got %v, want %v", compressed, c.compressed)
			}

			handedOver := c.endpoints.loopConns.HandedOver.Load()
			http1test.ExchangeTCP(t, c.endpoints.loop, request)
			if byNetHTTP := c.endpoints.loopConns.HandedOver.Load() > handedOver; byNetHTTP != c.byNetHTTP {
				t.Errorf("net/http answers the call: got %v, want %v", byNetHTTP, c.byNetHTTP)
			}
		})
	}

	// Requests that are plain in a special way, or not plain.
	for _, request := range unusualRequests() {
		t.Run(fmt.Sprintf("%.60q", request), func(t *testing.T) {
			isHTTP2 := strings.HasPrefix(request, "PRI")
			beginsWithLineBreak := strings.TrimLeft(request, "\r\n") != request

			// The request is the first one of the connection, and then the third one. The latter
			// leaves out the one difference from net/http, which
			// http1.TestConnectionDoesNotBecomeHTTP2 has.
			current.demandSame(t, request+plain+http1test.LastRequest)
			if !isHTTP2 && !beginsWithLineBreak {
				current.demandSame(t, plain+plain+request+plain+http1test.LastRequest)
			}

			// The request ends early. HTTP/2 is left out, because net/http's answer depends on when
			// net/http sees the end.
			if isHTTP2 {
				return
			}
			for _, cut := range cutsOf(request) {
				got := http1test.ParseAnswers(http1test.ExchangeTCP(t, current.loop, request[:cut]))
				want := http1test.ParseAnswers(http1test.ExchangeTCP(t, current.netHTTP, request[:cut]))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answers to %.300q and the end of the connection (-net/http +loop):\n%s", request[:cut], diff)
				}
			}
		})
	}
}

// unusualRequests returns requests for a server that the parser of the loop accepts or leaves to
// net/http.
func unusualRequests() []string {
	request, path := http1test.Request, http1test.MethodPath

	// The other plain requests call no method of the service.
	requests := slices.Clone(http1test.PlainRequests[:4])
	requests = append(requests, http1test.OddRequests...)
	return append(requests,
		request("/skein.v1.GraphService/Nothing", "", ""),
		request("/skein.v1.EventService/Watch", "", ""),
		request("http://x"+path, "", ""),
		request(path+"?", "", ""),
		request(path+"/", "", ""),
		request("/skein.v1.GraphService/Check%46ollows", "", ""),
		request("//skein.v1.GraphService/CheckFollows", "", ""),
		request(path, "X: "+strings.Repeat("y", 7000)+"\r\n", "abc"),
		request(path, "X: "+strings.Repeat("y", 9000)+"\r\n", "abc"),
		request(path, strings.Repeat("X: y\r\n", 1000), "abc"),
		request(path, "", strings.Repeat("y", 64<<10)),
		request(path, "", strings.Repeat("y", 64<<10+1)),
	)
}

// cutsOf returns where a request is cut: behind the first line, in the middle of the head, before
// the last line of the head, and in the body.
func cutsOf(request string) (cuts []int) {
	headLength := strings.Index(request, "\r\n\r\n") + 4
	all := []int{strings.Index(request, "\n") + 1, headLength / 2, headLength - 2}
	if strings.Contains(request, "\r\nContent-Length: 3\r\n") && strings.HasSuffix(request, "\nabc") {
		all = append(all, len(request)-1)
	}

	for _, cut := range all {
		if cut > 0 && cut < len(request) {
			cuts = append(cuts, cut)
		}
	}
	return cuts
}

// newFailingServer returns a server over the log of w whose stores hold nothing. Its methods
// ListBlocked, ListMuted and ListExcludedBoards fail.
func newFailingServer(t *testing.T, w *world, options ...func(*worldOptions)) *Server {
	t.Helper()
	s := w.replica(append(options, asleep, func(o *worldOptions) {
		o.Limits.AtLeastWait = time.Millisecond
		o.Limits.BodyBytes = 5000
	})...).server

	mountUnary(s, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic("a bug")
		})

	// The token is not UTF-8, so the answer cannot be encoded.
	mountUnary(s, connectv1.GraphServiceListMutedProcedure, nil,
		func(context.Context, *skeinv1.ListMutedRequest, *call.Info) (*skeinv1.ListMutedResponse, error) {
			return &skeinv1.ListMutedResponse{NextPageToken: "\xff"}, nil
		})

	// The method waits for the caller's deadline, but not for the server's own, which is far away.
	mountUnary(s, connectv1.GraphServiceListExcludedBoardsProcedure, nil,
		func(ctx context.Context, _ *skeinv1.ListExcludedBoardsRequest, _ *call.Info) (*skeinv1.ListExcludedBoardsResponse, error) {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) > time.Second {
				return &skeinv1.ListExcludedBoardsResponse{}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	return s
}

// TestClientStaysInTheLoop checks that the loop answers what connect-go's client sends by itself,
// also with a deadline, and with answers that may be compressed.
func TestClientStaysInTheLoop(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	client := connectv1.NewGraphServiceClient(w.http, w.url)
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()

	for range 3 {
		res, err := client.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(res.Msg.GetEntries()); n != 1 {
			t.Fatalf("ListFollowers: got %d followers, want 1", n)
		}
	}
	if n := w.server.conns.HandedOver.Load(); n != 0 {
		t.Errorf("%d connections went to net/http, want none", n)
	}
}
