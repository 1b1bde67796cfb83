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

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// netHTTPAlone is an endpoint for clients whose loop answers nothing by itself.
func netHTTPAlone(s *Server) *endpoint {
	e := s.clientEndpoint()
	e.methods = nil
	return e
}

// serveEndpoint serves a listener until the test ends.
func serveEndpoint(t *testing.T, e *endpoint, l net.Listener) {
	t.Helper()
	loop := e.loop(l, e.s.httpServer(e.s, e.conns))
	served := make(chan error, 1)
	go func() { served <- loop.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(loop.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
}

// Whatever comes, and whatever comes after it on the connection, is answered as if there were net/http alone.
func TestFrontAnswersAsNetHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.caughtUp(w.publish(follow("ann", "bob")))
	both, alone := http1test.NewPipes(), http1test.NewPipes()
	serveEndpoint(t, w.server.clientEndpoint(), both)
	serveEndpoint(t, netHTTPAlone(w.server), alone)
	same := func(request string) {
		t.Helper()
		got := fmt.Sprintf("%q", http1test.ParseAnswers(http1test.Exchange(t, both.Dial(), []byte(request))))
		want := fmt.Sprintf("%q", http1test.ParseAnswers(http1test.Exchange(t, alone.Dial(), []byte(request))))
		if got != want {
			t.Errorf("%.300q:\n got %s\nwant %s", request, got, want)
		}
	}
	good := http1test.Request(http1test.MethodPath, "", string(marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}})))
	for _, request := range append(oddRequests(), good) {
		for _, before := range []string{"", good, good + good} {
			if before != "" && (strings.HasPrefix(request, "PRI") || strings.TrimLeft(request, "\r\n") != request) {
				continue // TestFrontRefuses
			}
			for _, after := range []string{http1test.LastRequest, good + http1test.LastRequest} {
				same(before + request + after)
			}
		}
	}
}

// oddRequests are some that are plain, and many that are not.
func oddRequests() []string {
	return append(append(http1test.PlainRequests[:4:4], http1test.OddRequests...),
		http1test.Request("/skein.v1.GraphService/Nothing", "", ""), http1test.Request("/skein.v1.EventService/Watch", "", ""),
		http1test.Request("http://x"+http1test.MethodPath, "", ""), http1test.Request(http1test.MethodPath+"?", "", ""), http1test.Request(http1test.MethodPath+"/", "", ""),
		http1test.Request("/skein.v1.GraphService/Check%46ollows", "", ""), http1test.Request("//skein.v1.GraphService/CheckFollows", "", ""),
		http1test.Request(http1test.MethodPath, "X: "+strings.Repeat("y", 7000)+"\r\n", "abc"),
		http1test.Request(http1test.MethodPath, "X: "+strings.Repeat("y", 9000)+"\r\n", "abc"),
		http1test.Request(http1test.MethodPath, strings.Repeat("X: y\r\n", 1000), "abc"),
		http1test.Request(http1test.MethodPath, "", strings.Repeat("y", 64<<10)), http1test.Request(http1test.MethodPath, "", strings.Repeat("y", 64<<10+1)),
	)
}

// What ends early, anywhere, is answered as if there were net/http alone.
func TestFrontBreaksOff(t *testing.T) {
	w := newWorld(t)
	alone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveEndpoint(t, netHTTPAlone(w.server), alone)
	for _, request := range oddRequests() {
		// A whole request is left out, and HTTP/2: what net/http answers there depends on when it sees the end.
		if strings.HasPrefix(request, "PRI") {
			continue
		}
		head := strings.Index(request, "\r\n\r\n") + 4
		cuts := []int{strings.Index(request, "\n") + 1, head / 2, head - 2}
		if strings.Contains(request, "\r\nContent-Length: 3\r\n") && strings.HasSuffix(request, "\nabc") {
			cuts = append(cuts, len(request)-1)
		}
		for _, n := range cuts {
			if n < 1 || n >= len(request) {
				continue
			}
			got, want := http1test.ExchangeTCP(t, w.url, request[:n]), http1test.ExchangeTCP(t, alone.Addr().String(), request[:n])
			if g, w := fmt.Sprintf("%q", http1test.ParseAnswers(got)), fmt.Sprintf("%q", http1test.ParseAnswers(want)); g != w {
				t.Errorf("%.300q:\n got %s\nwant %s", request[:n], g, w)
			}
		}
	}
}

// A call in the loop ends when its caller gives up, and no earlier than it must.
func TestFrontDeadline(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) {
		o.AllowedHosts, o.Limits.AtLeastWait, o.Limits.CallTimeout = []string{"x"}, time.Hour, time.Hour
	})
	at := w.publish(follow("ann", "bob"))
	body := marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at})
	before := w.server.conns.HandedOver.Load()
	got := http1test.ParseAnswers(http1test.ExchangeTCP(t, w.url, http1test.Request(connectv1.GraphServiceCheckFollowsProcedure, "Connect-Timeout-Ms: 500\r\n", string(body))))
	// It ends a little before the caller's deadline, to say why, or on a machine that is busy with it.
	if len(got) != 1 || !strings.HasPrefix(got[0], "503") && !strings.HasPrefix(got[0], "504") || w.server.conns.HandedOver.Load() != before {
		t.Errorf("%q", got)
	}
}

// What connect-go's client sends by itself stays in the loop, deadlines and answers that are compressed too.
func TestClientStaysInTheLoop(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	client := connectv1.NewGraphServiceClient(w.http, w.url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		res, err := client.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		if err != nil || len(res.Msg.GetEntries()) != 1 {
			t.Fatal(res, err)
		}
	}
	if n := w.server.conns.HandedOver.Load(); n != 0 {
		t.Errorf("%d connections were handed over", n)
	}
}
