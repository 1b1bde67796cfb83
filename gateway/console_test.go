package gateway

import (
	"net/http"
	"testing"

	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestConsoleMayCall checks that, without access control, the page of the console may call the
// server, and no other page may.
func TestConsoleMayCall(t *testing.T) {
	withConsole := newWebPage(t, newWorld(t, func(o *worldOptions) { o.Console = true }))
	withoutConsole := newWebPage(t, newWorld(t))
	withNamedHost := newWebPage(t, newWorld(t, func(o *worldOptions) {
		o.Console = true
		o.AllowedHosts = []string{"skein.internal"}
	}))
	withAnyHost := newWebPage(t, newWorld(t, func(o *worldOptions) {
		o.Console = true
		o.AllowedHosts = []string{"*"}
	}))

	const body = `{"userId":"ann"}`
	for _, c := range []struct {
		name               string
		page               *webPage
		host, origin, want string
	}{
		{"own page", withConsole, "localhost:7411", "http://localhost:7411", "200"},
		{"own page by IPv6 address", withConsole, "[::1]:7411", "http://[::1]:7411", "200"},
		{"page of another port", withConsole, "localhost:7411", "http://localhost:7412", wrongOrigin},
		{"page of the default port", withConsole, "localhost:7411", "http://localhost", wrongOrigin},
		{"page over TLS", withConsole, "localhost:7411", "https://localhost:7411", wrongOrigin},
		{"page by another name of the machine", withConsole, "localhost:7411", "http://127.0.0.1:7411", wrongOrigin},
		{"page without an origin", withConsole, "localhost:7411", "null", wrongOrigin},
		{"page of a host that is not allowed", withConsole, "evil.example", "http://evil.example", wrongHost},
		{"own page by an allowed name", withNamedHost, "skein.internal:7411", "http://skein.internal:7411", "200"},
		// The owner of any name can have the name point to this machine, so the name proves
		// nothing.
		{"page of any host", withAnyHost, "evil.example", "http://evil.example", wrongOrigin},
		{"own page if any host is allowed", withAnyHost, "localhost:7411", "http://localhost:7411", "200"},
		{"own page without a console", withoutConsole, "localhost:7411", "http://localhost:7411", wrongOrigin},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.page.ask(http.MethodPost, connectv1.GraphServiceListFollowersProcedure, c.host, c.origin, body)
			if got != c.want {
				t.Errorf("%s from %q: got %s, want %s", c.host, c.origin, got, c.want)
			}
		})
	}

	for path, want := range map[string]int{"/console/": 200, "/console": 200, "/console/nothing": 404} {
		if got, _, _ := withConsole.get(path); got != want {
			t.Errorf("GET %s: got status %d, want %d", path, got, want)
		}
		if got, _, _ := withoutConsole.get(path); got != http.StatusNotFound {
			t.Errorf("GET %s without a console: got status %d, want 404", path, got)
		}
	}
	if got, _, _ := withConsole.post("/console/", "text/plain", http.NoBody); got != http.StatusMethodNotAllowed {
		t.Errorf("POST /console/: got status %d, want 405", got)
	}
}

// TestConsoleIsServedWithoutTokenButCallsNeedOne checks that the page, which contains no data,
// needs no token. The calls that it makes do.
func TestConsoleIsServedWithoutTokenButCallsNeedOne(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Console = true })
	if status, _, _ := g.as("").get("/console/"); status != http.StatusOK {
		t.Errorf("GET /console/ without a token: got status %d, want 200", status)
	}
	for token, want := range map[string]string{"": "TOKEN_MISSING", "no token of this service": "TOKEN_INVALID", g.tokens["publisher"]: "ROLE_MISSING"} {
		_, reason := g.callForError(t, connectv1.AdminServiceListOperationsProcedure, "application/json", []byte("{}"), token)
		if reason != want {
			t.Errorf("ListOperations with the token %q: got %q, want %q", token, reason, want)
		}
	}
}
