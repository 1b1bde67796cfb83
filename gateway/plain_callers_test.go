package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestEachCallIsJudgedByItsOwnToken: callers take turns on one connection. The loop answers as long
// as the callers are known, and net/http from the first unknown one on.
func TestEachCallIsJudgedByItsOwnToken(t *testing.T) {
	tokens, text := map[string]string{}, ""
	for _, c := range []access.Caller{
		{Name: "reader", Roles: access.Read},
		{Name: "publisher", Roles: access.Publish},
		{Name: "ann", Roles: access.Read, User: "ann"},
		{Name: "bob", Roles: access.Read, User: "bob"},
	} {
		token, line, err := access.NewToken(c, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		tokens[c.Name], text = token, text+line+"\n"
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := access.Open(access.Options{Tokens: file})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *worldOptions) { o.Authenticator = gate })
	body := string(marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}))
	call := func(name string) string {
		header := ""
		if name != "" {
			header = "Authorization: Bearer " + tokens[name] + "\r\n"
		}
		return http1test.Request(connectv1.GraphServiceCheckFollowsProcedure, header, body)
	}
	for _, c := range []struct {
		callers, said []string
		// answered is how many of these calls the loop answered.
		answered int
	}{
		{[]string{"reader", "publisher", "ann", "bob", "ann", "reader"}, []string{"200", "403", "200", "403", "200", "200"}, 6},
		{[]string{"reader", "", "reader", "bob"}, []string{"200", "401", "200", "403"}, 1},
		{[]string{"nobody", "ann"}, []string{"401", "200"}, 0},
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		all := bufio.NewReader(conn)
		said, answered := []string{}, 0
		for _, name := range c.callers {
			before := w.server.conns.HandedOver.Load()
			if _, err := io.WriteString(conn, call(name)); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(all, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body) // its length is known
			res.Body.Close()
			said = append(said, res.Status[:3])
			if answered == len(said)-1 && w.server.conns.HandedOver.Load() == before {
				answered++
			}
		}
		conn.Close()
		if !slices.Equal(said, c.said) || answered != c.answered {
			t.Errorf("%q: %q, of which the loop answered %d, not %q and %d", c.callers, said, answered, c.said, c.answered)
		}
	}
}
