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

// TestEachCallIsJudgedByItsOwnToken lets callers take turns on one connection. The loop answers as
// long as the callers are known, and net/http answers from the first unknown one on.
func TestEachCallIsJudgedByItsOwnToken(t *testing.T) {
	tokens := map[string]string{}
	var tokenLines strings.Builder
	for _, caller := range []access.Caller{
		{Name: "reader", Roles: access.Read},
		{Name: "publisher", Roles: access.Publish},
		{Name: "ann", Roles: access.Read, User: "ann"},
		{Name: "bob", Roles: access.Read, User: "bob"},
	} {
		token, line, err := access.NewToken(caller, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		tokens[caller.Name] = token
		tokenLines.WriteString(line + "\n")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(tokenLines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := access.Open(access.Options{Tokens: file})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *worldOptions) { o.Authenticator = gate })

	// The caller nobody sends a token that is unknown, and the caller "" sends none.
	body := string(marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}))
	requestOf := func(caller string) string {
		header := ""
		if caller != "" {
			header = "Authorization: Bearer " + tokens[caller] + "\r\n"
		}
		return http1test.Request(connectv1.GraphServiceCheckFollowsProcedure, header, body)
	}

	for _, c := range []struct {
		name              string
		callers, statuses []string
		// byLoop is how many of these calls the loop answered before net/http took over.
		byLoop int
	}{
		{
			"known callers",
			[]string{"reader", "publisher", "ann", "bob", "ann", "reader"},
			[]string{"200", "403", "200", "403", "200", "200"},
			6,
		},
		{"a caller without a token", []string{"reader", "", "reader", "bob"}, []string{"200", "401", "200", "403"}, 1},
		{"an unknown caller first", []string{"nobody", "ann"}, []string{"401", "200"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)

			statuses := []string{}
			byLoop := 0
			for i, caller := range c.callers {
				handedOver := w.server.conns.HandedOver.Load()
				if _, err := io.WriteString(conn, requestOf(caller)); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body) // The next answer follows the body.
				res.Body.Close()
				statuses = append(statuses, res.Status[:3])

				// A connection that was handed over to net/http stays there, so only calls before
				// that count.
				if byLoop == i && w.server.conns.HandedOver.Load() == handedOver {
					byLoop++
				}
			}

			if !slices.Equal(statuses, c.statuses) {
				t.Errorf("callers %q: got statuses %q, want %q", c.callers, statuses, c.statuses)
			}
			if byLoop != c.byLoop {
				t.Errorf("callers %q: the loop answered %d calls, want %d", c.callers, byLoop, c.byLoop)
			}
		})
	}
}
