//go:build !race

package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// accessCase is the caller of a benchmark.
type accessCase struct {
	name, token string
	gate        *access.Authenticator
}

// accessCases are those with access control off, by a token of the file, by one that is bound to
// user 17, and by a JWT.
func accessCases(b *testing.B) []accessCase {
	b.Helper()
	file := filepath.Join(b.TempDir(), "tokens")
	all, line, err := access.NewToken(access.Caller{Name: "web", Roles: access.Read}, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	bound, boundLine, err := access.NewToken(access.Caller{Name: "phone", Roles: access.Read, User: "17"}, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(line+"\n"+boundLine+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	jwts := accesstest.NewJWTs(b, "one")
	gate, err := access.Open(access.Options{
		Tokens: file, JWKS: jwts.File, Issuer: accesstest.Issuer, Audience: accesstest.Audience,
	})
	if err != nil {
		b.Fatal(err)
	}
	return []accessCase{{"off", "", nil}, {"static", all, gate}, {"bound", bound, gate}, {"jwt", jwts.Token(nil), gate}}
}

// request is a plain call as it goes over a connection.
func (c accessCase) request(b *testing.B, procedure string, req proto.Message) []byte {
	b.Helper()
	body, err := proto.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	line := ""
	if c.token != "" {
		line = "Authorization: Bearer " + c.token + "\r\n"
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\n%sContent-Length: %d\r\n\r\n%s",
		procedure, line, len(body), body)
}

// BenchmarkAccess is what it costs a plain call to say who makes it, of calls that cost little by
// themselves: with access control off, by a token of the file, by one that is bound to a user, and
// by a JWT. Without system calls, and over a connection that stays open.
func BenchmarkAccess(b *testing.B) {
	w := benchWorld(b)
	cases := accessCases(b)
	filter := &skeinv1.FilterFollowedRequest{ViewerId: "17"}
	for i := range 25 {
		filter.UserIds = append(filter.UserIds, fmt.Sprint(100_000+5*i))
	}
	for _, c := range []struct {
		name, procedure string
		req             proto.Message
	}{
		{
			"check 1", connectv1.GraphServiceCheckFollowsProcedure,
			&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("17", "100000")}},
		},
		{"filter 25", connectv1.GraphServiceFilterFollowedProcedure, filter},
	} {
		for _, as := range cases {
			request := as.request(b, c.procedure, c.req)
			call := loopCall(b, w.server, request)
			b.Run("loop/"+c.name+"/"+as.name, func(b *testing.B) {
				w.server.authenticator = as.gate
				b.ReportAllocs()
				call(b.N)
			})
			b.Run("http/"+c.name+"/"+as.name, func(b *testing.B) {
				w.server.authenticator = as.gate
				b.SetParallelism(25)
				b.RunParallel(func(pb *testing.PB) {
					if err := drive(w.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
	w.server.authenticator = nil
}

// BenchmarkAccessP99 is the median and the 99th percentile of a check of one pair over four
// connections that stay open. The cases take turns, so that what else the machine does hits all of
// them.
func BenchmarkAccessP99(b *testing.B) {
	const conns, calls = 4, 250
	w := benchWorld(b)
	cases := accessCases(b)
	took := make([][]time.Duration, len(cases))
	for b.Loop() {
		for i, c := range cases {
			w.server.authenticator = c.gate
			request := c.request(b, connectv1.GraphServiceCheckFollowsProcedure,
				&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("17", "100000")}})
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range conns {
				wg.Go(func() {
					var own []time.Duration
					last := time.Time{}
					err := drive(w.url, request, func() bool {
						now := time.Now()
						if !last.IsZero() {
							own = append(own, now.Sub(last))
						}
						last = now
						return len(own) < calls
					})
					mu.Lock()
					defer mu.Unlock()
					if took[i] = append(took[i], own...); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
		}
	}
	w.server.authenticator = nil
	for i, c := range cases {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2])/1e3, c.name+"-p50-µs")
		b.ReportMetric(float64(took[i][len(took[i])*99/100])/1e3, c.name+"-p99-µs")
	}
}
