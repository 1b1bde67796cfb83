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

// benchWorld starts a process that has flushed the events of [world.benchFacts] to disk.
func benchWorld(b *testing.B) *world {
	b.Helper()
	w := newWorld(b, withSeen, withCounters, func(o *worldOptions) { o.cache = 512 << 20 })
	w.flushedAt(b, w.benchFacts(b))
	return w
}

// benchFacts publishes the events that benchmarks ask about, and returns the position that contains
// them: user 17 plays 3300 items, and each of 1000 users follows 100 others.
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

// benchRequests returns requests about the events of [world.benchFacts]. The number in a name is
// how many pairs, users, items or keys the request has.
func benchRequests() []struct {
	name, procedure string
	req             proto.Message
} {
	newCheck := func(n int) proto.Message {
		req := &skeinv1.CheckFollowsRequest{}
		for i := range n {
			req.Pairs = append(req.Pairs, userPair("17", fmt.Sprint(100_000+5*i)))
		}
		return req
	}
	newFilter := func(n int) proto.Message {
		req := &skeinv1.FilterFollowedRequest{ViewerId: "17"}
		for i := range n {
			req.UserIds = append(req.UserIds, fmt.Sprint(100_000+5*i))
		}
		return req
	}
	newSeen := func(n int) proto.Message {
		req := &skeinv1.FilterSeenRequest{UserId: "17"}
		for i := range n {
			req.ItemIds = append(req.ItemIds, fmt.Sprint(i))
		}
		return req
	}
	seenNumbers := &skeinv1.FilterSeenRequest{UserId: "17"}
	for i := range seenservice.MaxCandidates {
		seenNumbers.NumericIds = append(seenNumbers.NumericIds, uint64(i))
	}
	newCounts := func(n int) proto.Message {
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
		{"check 1", connectv1.GraphServiceCheckFollowsProcedure, newCheck(1)},
		{"check 25", connectv1.GraphServiceCheckFollowsProcedure, newCheck(25)},
		{"filter 1", connectv1.GraphServiceFilterFollowedProcedure, newFilter(1)},
		{"filter 25", connectv1.GraphServiceFilterFollowedProcedure, newFilter(25)},
		{"seen 100", connectv1.SeenServiceFilterSeenProcedure, newSeen(100)},
		{"seen 10000", connectv1.SeenServiceFilterSeenProcedure, newSeen(seenservice.MaxCandidates)},
		{"seen 10000 numbers", connectv1.SeenServiceFilterSeenProcedure, seenNumbers},
		{"counters 1", connectv1.CounterServiceBatchGetCountersProcedure, newCounts(1)},
		{"counters 25", connectv1.CounterServiceBatchGetCountersProcedure, newCounts(25)},
		{"newest 50", connectv1.GraphServiceListFollowersProcedure, &skeinv1.ListFollowersRequest{UserId: "100003"}},
	}
}

var encodings = []struct {
	name    string
	marshal func(proto.Message) ([]byte, error)
}{
	{"proto", proto.Marshal},
	{"json", protojson.Marshal},
}

// BenchmarkHandler measures calls of the HTTP handler, without the network.
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

// BenchmarkHTTP measures calls over connections that stay open. The client does as little as it
// can, so that the server takes most of the time.
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
					if err := sendRepeatedly(w.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// sendRepeatedly sends the request over one connection, and reads the answer, for as long as next
// returns true.
func sendRepeatedly(url string, request []byte, next func() bool) error {
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
		if err := discardHTTPAnswer(r); err != nil {
			return err
		}
	}
	return nil
}

// discardHTTPAnswer reads an HTTP/1.1 answer to its end. It looks only at the lines of the head
// that say where the body ends, which costs less than [http.ReadResponse].
func discardHTTPAnswer(r *bufio.Reader) error {
	length := 0
	chunked := false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= len("\r\n") {
			break // an empty line ends the head
		}
		if bytes.HasPrefix(line, []byte("Transfer-Encoding: chunked")) {
			chunked = true
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if _, err := fmt.Sscan(string(value), &length); err != nil {
				return err
			}
		}
	}

	if chunked {
		if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
			return err
		}
		// The chunked reader leaves the empty line after the last chunk.
		length = len("\r\n")
	}
	_, err := r.Discard(length)
	return err
}

// BenchmarkRules compares the hand-written checks of requests with the rules of the protos, which
// the hand-written checks replace.
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
