package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	loop, netHTTP string
	// loopConns are the connections of the first one.
	loopConns *admission.Connections
}

func newTwoEndpoints(t *testing.T, s *Server) *twoEndpoints {
	t.Helper()
	withLoop, without := s.clientEndpoint(), s.clientEndpoint()
	withLoop.conns, without.conns = &admission.Connections{}, &admission.Connections{}
	without.methods = nil
	return &twoEndpoints{loop: serveEndpoint(t, withLoop), netHTTP: serveEndpoint(t, without), loopConns: withLoop.conns}
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

// demandSame fails unless both endpoints answer bytes alike, and returns the answers.
func (e *twoEndpoints) demandSame(t *testing.T, requests string) []string {
	t.Helper()
	got := exchange(t, e.loop, requests)
	if diff := cmp.Diff(exchange(t, e.netHTTP, requests), got); diff != "" {
		t.Errorf("%.300q: (-net/http +loop)\n%s", requests, diff)
	}
	return got
}

// TestLoopAnswersLikeNetHTTP: whatever comes, and whatever comes before and behind it on the
// connection, is answered as if there were net/http alone.
func TestLoopAnswersLikeNetHTTP(t *testing.T) {
	anyName := func(o *worldOptions) { o.AllowedHosts = []string{"x"} }
	w := newWorld(t, withSeen, anyName)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range 100 {
		evs = append(evs, follow(fmt.Sprint("reader", i), "ann"))
	}
	at := w.publish(evs...)
	w.caughtUp(at)
	current := newTwoEndpoints(t, w.server)
	behind := newTwoEndpoints(t, newFailingServer(t, w, anyName))
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	plain := http1test.Request(http1test.MethodPath, "", string(marshal(t, check)))

	// Methods: what they answer, and how they fail.
	check.AtLeast = at
	for _, c := range []struct {
		name      string
		endpoints *twoEndpoints
		procedure string
		lines     string
		req       proto.Message
		status    string
		// byNetHTTP says that the call is not for the loop.
		byNetHTTP bool
	}{
		{"an answer", current, connectv1.GraphServiceCheckFollowsProcedure, "", check, "200", false},
		{
			"a short answer is not compressed", current, connectv1.GraphServiceListFollowersProcedure, "Accept-Encoding: gzip\r\n",
			&skeinv1.ListFollowersRequest{UserId: "ann", PageSize: 1}, "200", false,
		},
		{
			"a long answer is compressed", current, connectv1.GraphServiceListFollowersProcedure, "Accept-Encoding: gzip\r\n",
			&skeinv1.ListFollowersRequest{UserId: "ann", PageSize: 100}, "200", false,
		},
		{"an invalid request", current, connectv1.GraphServiceListFollowersProcedure, "", &skeinv1.ListFollowersRequest{}, "400", false},
		{"no projection", current, connectv1.CounterServiceListTrendingProcedure, "", &skeinv1.ListTrendingRequest{}, "501", false},
		{"no time", current, connectv1.GraphServiceCheckFollowsProcedure, "Connect-Timeout-Ms: 0\r\n", check, "504", true},
		{"a position that does not come", behind, connectv1.GraphServiceCheckFollowsProcedure, "", check, "503", false},
		{
			"a panic", behind, connectv1.GraphServiceListBlockedProcedure, "X-Request-Id: a-panic\r\n",
			&skeinv1.ListBlockedRequest{UserId: "ann"}, "500", false,
		},
		{
			"an answer that cannot be encoded", behind, connectv1.GraphServiceListMutedProcedure, "",
			&skeinv1.ListMutedRequest{UserId: "ann"}, "500", false,
		},
		{
			"a caller who gives up", behind, connectv1.GraphServiceListExcludedBoardsProcedure, "Connect-Timeout-Ms: 100\r\n",
			&skeinv1.ListExcludedBoardsRequest{UserId: "ann"}, "504", false,
		},
		{
			"a body above the limit", behind, connectv1.GraphServiceListMutualsProcedure, "",
			&skeinv1.ListMutualsRequest{UserId: strings.Repeat("x", 5000)}, "400", true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := http1test.Request(c.procedure, c.lines, string(marshal(t, c.req)))
			answers := c.endpoints.demandSame(t, request+strings.Replace(request, "\r\nHost", "\r\nConnection: close\r\nHost", 1))
			if len(answers) != 2 || !strings.HasPrefix(answers[0], c.status) {
				t.Fatalf("got %q, expected two answers with status %s", answers, c.status)
			}
			if compressed := strings.Contains(answers[0], "Content-Encoding:[gzip]"); compressed != strings.HasSuffix(c.name, " is compressed") {
				t.Errorf("the answer is compressed: %v", compressed)
			}

			before := c.endpoints.loopConns.HandedOver.Load()
			http1test.ExchangeTCP(t, c.endpoints.loop, request)
			if byNetHTTP := c.endpoints.loopConns.HandedOver.Load() > before; byNetHTTP != c.byNetHTTP {
				t.Errorf("net/http answers the call: %v, expected %v", byNetHTTP, c.byNetHTTP)
			}
		})
	}

	// Requests that are plain in a special way, or not plain.
	for _, request := range unusualRequests() {
		t.Run(fmt.Sprintf("%.60q", request), func(t *testing.T) {
			for _, before := range []string{"", plain + plain} {
				// http1.TestConnectionDoesNotBecomeHTTP2 has the one difference from net/http.
				if before == "" || !strings.HasPrefix(request, "PRI") && strings.TrimLeft(request, "\r\n") == request {
					current.demandSame(t, before+request+plain+http1test.LastRequest)
				}
			}

			// The request ends early. HTTP/2 is left out: net/http's answer depends on when
			// net/http sees the end.
			if strings.HasPrefix(request, "PRI") {
				return
			}
			for _, cut := range cutsOf(request) {
				got := http1test.ParseAnswers(http1test.ExchangeTCP(t, current.loop, request[:cut]))
				expected := http1test.ParseAnswers(http1test.ExchangeTCP(t, current.netHTTP, request[:cut]))
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("%.300q, and then nothing: (-net/http +loop)\n%s", request[:cut], diff)
				}
			}
		})
	}
}

// unusualRequests returns requests for a server that the parser of the loop accepts or leaves to
// net/http.
func unusualRequests() []string {
	request, path := http1test.Request, http1test.MethodPath
	return append(append(http1test.PlainRequests[:4:4], http1test.OddRequests...),
		request("/skein.v1.GraphService/Nothing", "", ""), request("/skein.v1.EventService/Watch", "", ""),
		request("http://x"+path, "", ""), request(path+"?", "", ""), request(path+"/", "", ""),
		request("/skein.v1.GraphService/Check%46ollows", "", ""), request("//skein.v1.GraphService/CheckFollows", "", ""),
		request(path, "X: "+strings.Repeat("y", 7000)+"\r\n", "abc"), request(path, "X: "+strings.Repeat("y", 9000)+"\r\n", "abc"),
		request(path, strings.Repeat("X: y\r\n", 1000), "abc"),
		request(path, "", strings.Repeat("y", 64<<10)), request(path, "", strings.Repeat("y", 64<<10+1)),
	)
}

// cutsOf returns where a request is cut: behind the first line, in the middle of the head, before
// its last line, and in the body.
func cutsOf(request string) (cuts []int) {
	head := strings.Index(request, "\r\n\r\n") + 4
	all := []int{strings.Index(request, "\n") + 1, head / 2, head - 2}
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

// newFailingServer returns a server over the log of w whose stores hold nothing, and some methods
// of which fail.
func newFailingServer(t *testing.T, w *world, options ...func(*worldOptions)) *Server {
	t.Helper()
	s := w.replica(append(options, asleep, func(o *worldOptions) {
		o.Limits.AtLeastWait, o.Limits.BodyBytes = time.Millisecond, 5000
	})...).server
	mountUnary(s, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic("a bug")
		})
	mountUnary(s, connectv1.GraphServiceListMutedProcedure, nil,
		func(context.Context, *skeinv1.ListMutedRequest, *call.Info) (*skeinv1.ListMutedResponse, error) {
			return &skeinv1.ListMutedResponse{NextPageToken: "\xff"}, nil
		})
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

// TestClientStaysInTheLoop: the loop answers what connect-go's client sends by itself, also with a
// deadline, and with answers that may be compressed.
func TestClientStaysInTheLoop(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	client := connectv1.NewGraphServiceClient(w.http, w.url)
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	for range 3 {
		res, err := client.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		if err != nil || len(res.Msg.GetEntries()) != 1 {
			t.Fatal(res, err)
		}
	}
	if n := w.server.conns.HandedOver.Load(); n != 0 {
		t.Errorf("%d connections went to net/http, expected none", n)
	}
}
