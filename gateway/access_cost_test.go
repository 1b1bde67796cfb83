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

// accessCase is a kind of caller whose calls a benchmark measures.
type accessCase struct {
	name          string
	token         string
	authenticator *access.Authenticator
}

// newAccessCases returns a caller without access control, one with a token of the token file, one
// with a token that is bound to user 17, and one with a JWT.
func newAccessCases(b *testing.B) []accessCase {
	b.Helper()
	unboundToken, unboundLine, err := access.NewToken(access.Caller{Name: "web", Roles: access.Read}, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	boundToken, boundLine, err := access.NewToken(access.Caller{Name: "phone", Roles: access.Read, User: "17"}, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	tokenFile := filepath.Join(b.TempDir(), "tokens")
	if err := os.WriteFile(tokenFile, []byte(unboundLine+"\n"+boundLine+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}

	jwts := accesstest.NewJWTs(b, "one")
	authenticator, err := access.Open(access.Options{
		Tokens: tokenFile, JWKS: jwts.File, Issuer: accesstest.Issuer, Audience: accesstest.Audience,
	})
	if err != nil {
		b.Fatal(err)
	}
	return []accessCase{
		{"off", "", nil},
		{"static", unboundToken, authenticator},
		{"bound", boundToken, authenticator},
		{"jwt", jwts.Token(nil), authenticator},
	}
}

// newRawRequest returns the bytes of a plain call over HTTP/1.1.
func (c accessCase) newRawRequest(b *testing.B, procedure string, req proto.Message) []byte {
	b.Helper()
	body, err := proto.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	authorization := ""
	if c.token != "" {
		authorization = "Authorization: Bearer " + c.token + "\r\n"
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\n%sContent-Length: %d\r\n\r\n%s",
		procedure, authorization, len(body), body)
}

// BenchmarkAccess measures what authentication adds to a plain call. The calls cost little by
// themselves, so that the difference shows. "loop" makes no system calls, and "http" uses
// connections that stay open.
func BenchmarkAccess(b *testing.B) {
	w := benchWorld(b)
	callers := newAccessCases(b)
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
		for _, caller := range callers {
			request := caller.newRawRequest(b, c.procedure, c.req)
			callInLoop := loopCall(b, w.server, request)
			b.Run("loop/"+c.name+"/"+caller.name, func(b *testing.B) {
				w.server.authenticator = caller.authenticator
				b.ReportAllocs()
				callInLoop(b.N)
			})
			b.Run("http/"+c.name+"/"+caller.name, func(b *testing.B) {
				w.server.authenticator = caller.authenticator
				b.SetParallelism(25)
				b.RunParallel(func(pb *testing.PB) {
					if err := sendRepeatedly(w.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
	w.server.authenticator = nil
}

// BenchmarkAccessP99 reports the median and the 99th percentile of the time that a check of one
// pair takes, over four connections that stay open. The callers take turns, so that other work of
// the machine affects all of them.
func BenchmarkAccessP99(b *testing.B) {
	const connections, callsPerConnection = 4, 250
	w := benchWorld(b)
	callers := newAccessCases(b)
	durations := make([][]time.Duration, len(callers))
	for b.Loop() {
		for i, caller := range callers {
			w.server.authenticator = caller.authenticator
			request := caller.newRawRequest(b, connectv1.GraphServiceCheckFollowsProcedure,
				&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("17", "100000")}})

			var mu sync.Mutex
			var wg sync.WaitGroup
			for range connections {
				wg.Go(func() {
					connectionDurations, err := measureCalls(w.url, request, callsPerConnection)
					if err != nil {
						b.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					durations[i] = append(durations[i], connectionDurations...)
				})
			}
			wg.Wait()
		}
	}
	w.server.authenticator = nil

	for i, caller := range callers {
		slices.Sort(durations[i])
		b.ReportMetric(float64(durations[i][len(durations[i])/2])/1e3, caller.name+"-p50-µs")
		b.ReportMetric(float64(durations[i][len(durations[i])*99/100])/1e3, caller.name+"-p99-µs")
	}
}

// measureCalls makes n calls over one connection, and returns how long each took. A call takes from
// the time at which sendRepeatedly asks whether to send it to the time at which it asks again.
func measureCalls(url string, request []byte, n int) (durations []time.Duration, err error) {
	var sentAt time.Time
	err = sendRepeatedly(url, request, func() bool {
		now := time.Now()
		if !sentAt.IsZero() {
			durations = append(durations, now.Sub(sentAt))
		}
		sentAt = now
		return len(durations) < n
	})
	return durations, err
}
