//go:build !race

package gateway

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// BenchmarkAccess is what it costs a plain call to say who makes it, of calls that cost little by themselves: with access control off,
// by a token of the file, by one that is bound to a user, and by a JWT. Without net/http, and over a connection that stays open.
func BenchmarkAccess(b *testing.B) {
	w := benchWorld(b)
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
		for _, as := range []struct {
			name, token string
			gate        *access.Gate
		}{
			{"off", "", nil}, {"static", all, gate}, {"bound", bound, gate}, {"jwt", jwts.Token(nil), gate},
		} {
			header := http.Header{}
			if as.token != "" {
				header.Set("Authorization", "Bearer "+as.token)
			}
			call := bareCall(b, w.server, c.procedure, c.req, header)
			b.Run("bare/"+c.name+"/"+as.name, func(b *testing.B) {
				w.server.gate = as.gate
				b.ReportAllocs()
				for b.Loop() {
					call()
				}
			})
			body, err := proto.Marshal(c.req)
			if err != nil {
				b.Fatal(err)
			}
			line := ""
			if as.token != "" {
				line = "Authorization: Bearer " + as.token + "\r\n"
			}
			request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n%sContent-Length: %d\r\n\r\n%s",
				c.procedure, line, len(body), body)
			b.Run("http/"+c.name+"/"+as.name, func(b *testing.B) {
				w.server.gate = as.gate
				b.SetParallelism(25)
				b.RunParallel(func(pb *testing.PB) {
					if err := drive(w.url, request, pb.Next); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
	w.server.gate = nil
}
