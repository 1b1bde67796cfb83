package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/counterservice"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/seenservice"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// benchWorld is a process with [world.benchFacts].
func benchWorld(b *testing.B) *world {
	b.Helper()
	w := newWorld(b, withSeen, withCounters, func(o *worldOptions) { o.cache = 512 << 20 })
	w.flushedAt(b, w.benchFacts(b))
	return w
}

// benchFacts publishes 1000 users who follow 100 each, of whom one has played 3300 items.
func (w *world) benchFacts(b *testing.B) (at string) {
	b.Helper()
	for batch := range 4 {
		var evs []*skeinv1.Event
		for i := range 825 {
			evs = append(evs, played("17", fmt.Sprint(3*(825*batch+i))))
		}
		if _, err := w.server.events.Publish(context.Background(), &skeinv1.PublishRequest{Events: evs}, &call.Info{}); err != nil {
			b.Fatal(err)
		}
	}
	for batch := range 100 {
		var evs []*skeinv1.Event
		for i := range 1000 {
			evs = append(evs, follow(fmt.Sprint(i), fmt.Sprint(100_000+13*batch+i%7)))
		}
		res, err := w.server.events.Publish(context.Background(), &skeinv1.PublishRequest{Events: evs}, &call.Info{})
		if err != nil {
			b.Fatal(err)
		}
		at = res.GetPosition()
	}
	return at
}

// flushedAt waits until the stores have folded the log up to a position, and flushes them.
func (w *world) flushedAt(b *testing.B, at string) {
	b.Helper()
	d, err := views.DemandOf(at)
	if err != nil {
		b.Fatal(err)
	}
	for _, store := range []*live.Live{w.store, w.seen, w.counters} {
		if err := store.WaitFor(context.Background(), d.Position.Seq); err != nil {
			b.Fatal(err)
		}
		if err := store.Serving().Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRequests() []struct {
	name, procedure string
	req             proto.Message
} {
	check := func(n int) proto.Message {
		req := &skeinv1.CheckFollowsRequest{}
		for i := range n {
			req.Pairs = append(req.Pairs, userPair("17", fmt.Sprint(100_000+5*i)))
		}
		return req
	}
	filter := func(n int) proto.Message {
		req := &skeinv1.FilterFollowedRequest{ViewerId: "17"}
		for i := range n {
			req.UserIds = append(req.UserIds, fmt.Sprint(100_000+5*i))
		}
		return req
	}
	seen := func(n int) *skeinv1.FilterSeenRequest {
		req := &skeinv1.FilterSeenRequest{UserId: "17"}
		for i := range n {
			req.ItemIds = append(req.ItemIds, fmt.Sprint(i))
		}
		return req
	}
	numbers := &skeinv1.FilterSeenRequest{UserId: "17"}
	for i := range seenservice.MaxCandidates {
		numbers.NumericIds = append(numbers.NumericIds, uint64(i))
	}
	counts := func(n int) proto.Message {
		req := &skeinv1.BatchGetCountersRequest{}
		for i := range n {
			req.Keys = append(req.Keys, countsOfItem(fmt.Sprint(i)))
		}
		return req
	}
	return []struct {
		name, procedure string
		req             proto.Message
	}{
		{"check 1", connectv1.GraphServiceCheckFollowsProcedure, check(1)},
		{"check 25", connectv1.GraphServiceCheckFollowsProcedure, check(25)},
		{"filter 1", connectv1.GraphServiceFilterFollowedProcedure, filter(1)},
		{"filter 25", connectv1.GraphServiceFilterFollowedProcedure, filter(25)},
		{"seen 100", connectv1.SeenServiceFilterSeenProcedure, seen(100)},
		{"seen 10000", connectv1.SeenServiceFilterSeenProcedure, seen(seenservice.MaxCandidates)},
		{"seen 10000 numbers", connectv1.SeenServiceFilterSeenProcedure, numbers},
		{"counters 1", connectv1.CounterServiceBatchGetCountersProcedure, counts(1)},
		{"counters 25", connectv1.CounterServiceBatchGetCountersProcedure, counts(25)},
		{"newest 50", connectv1.GraphServiceListFollowersProcedure, &skeinv1.ListFollowersRequest{UserId: "100003"}},
	}
}

var encodings = []struct {
	name    string
	marshal func(proto.Message) ([]byte, error)
}{{"proto", proto.Marshal}, {"json", protojson.Marshal}}

// BenchmarkHandler is a call without the network.
func BenchmarkHandler(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		for _, e := range encodings {
			b.Run(c.name+" "+e.name, func(b *testing.B) {
				body, err := e.marshal(c.req)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://localhost"+c.procedure, bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/"+e.name)
					rec := httptest.NewRecorder()
					w.server.ServeHTTP(rec, req)
					if rec.Code != http.StatusOK {
						b.Fatal(rec.Body)
					}
				}
			})
		}
	}
}

// BenchmarkHTTP is a call over a connection that stays open, by a client that does as little as it
// can.
func BenchmarkHTTP(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		for _, e := range encodings {
			b.Run(c.name+" "+e.name, func(b *testing.B) {
				body, err := e.marshal(c.req)
				if err != nil {
					b.Fatal(err)
				}
				request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/%s\r\nContent-Length: %d\r\n\r\n%s",
					c.procedure, e.name, len(body), body)
				b.SetParallelism(25)
				b.RunParallel(func(pb *testing.PB) {
					if err := drive(w.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// drive sends a request again and again.
func drive(url string, request []byte, next func() bool) error {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for next() {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		length, chunked := 0, false
		for line := []byte("the first"); len(line) > 2; {
			if line, err = r.ReadSlice('\n'); err != nil {
				return err
			}
			chunked = chunked || bytes.HasPrefix(line, []byte("Transfer-Encoding: chunked"))
			if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				if _, err := fmt.Sscan(string(v), &length); err != nil {
					return err
				}
			}
		}
		if chunked {
			if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
				return err
			}
			length = len("\r\n")
		}
		if _, err := r.Discard(length); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkRules is what the rules of the protos would cost where requests are checked by hand.
func BenchmarkRules(b *testing.B) {
	r, err := request.NewRules()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range benchRequests() {
		b.Run("rules "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Check(c.req)
			}
		})
		b.Run("hand "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				switch req := c.req.(type) {
				case *skeinv1.CheckFollowsRequest:
					graphservice.ValidateCheckFollows(req)
				case *skeinv1.FilterFollowedRequest:
					graphservice.ValidateFilterFollowed(req)
				case *skeinv1.FilterSeenRequest:
					seenservice.ValidateFilterSeen(req)
				case *skeinv1.BatchGetCountersRequest:
					counterservice.ValidateBatchGetCounters(req)
				}
			}
		})
	}
}
