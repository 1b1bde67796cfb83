package gateway

import (
	"net/http"
	"testing"

	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Without access control, the page of the console may call the server, and no other page may.
func TestConsoleMayCall(t *testing.T) {
	with := newWebPage(t, newWorld(t, func(o *worldOptions) { o.Console = true }))
	without := newWebPage(t, newWorld(t))
	named := newWebPage(t, newWorld(t, func(o *worldOptions) { o.Console, o.AllowedHosts = true, []string{"skein.internal"} }))
	open := newWebPage(t, newWorld(t, func(o *worldOptions) { o.Console, o.AllowedHosts = true, []string{"*"} }))
	list, body := connectv1.GraphServiceListFollowersProcedure, `{"userId":"ann"}`
	for _, c := range []struct {
		s                  *webPage
		host, origin, want string
	}{
		{with, "localhost:7411", "http://localhost:7411", "200"},
		{with, "[::1]:7411", "http://[::1]:7411", "200"},
		{with, "localhost:7411", "http://localhost:7412", wrongOrigin},
		{with, "localhost:7411", "http://localhost", wrongOrigin},
		{with, "localhost:7411", "https://localhost:7411", wrongOrigin},
		{with, "localhost:7411", "http://127.0.0.1:7411", wrongOrigin},
		{with, "localhost:7411", "null", wrongOrigin},
		{with, "evil.example", "http://evil.example", wrongHost},
		{named, "skein.internal:7411", "http://skein.internal:7411", "200"},
		// Any page can have its own name mean this machine.
		{open, "evil.example", "http://evil.example", wrongOrigin},
		{open, "localhost:7411", "http://localhost:7411", "200"},
		{without, "localhost:7411", "http://localhost:7411", wrongOrigin},
	} {
		if got := c.s.ask(http.MethodPost, list, c.host, c.origin, body); got != c.want {
			t.Errorf("%s from %q: %s, want %s", c.host, c.origin, got, c.want)
		}
	}
	for path, want := range map[string]int{"/console/": 200, "/console": 200, "/console/nothing": 404} {
		if status, _, _ := with.get(path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
		if status, _, _ := without.get(path); status != http.StatusNotFound {
			t.Errorf("%s without a console: %d", path, status)
		}
	}
	if status, _, _ := with.post("/console/", "text/plain", http.NoBody); status != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", status)
	}
}

// The page contains no data, so it needs no token. The calls that it makes do.
func TestConsoleIsServedWithoutTokenButCallsNeedOne(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Console = true })
	if status, _, _ := g.as("").get("/console/"); status != http.StatusOK {
		t.Errorf("the page: %d", status)
	}
	for token, want := range map[string]string{"": "TOKEN_MISSING", "no token of this service": "TOKEN_INVALID", g.tokens["publisher"]: "ROLE_MISSING"} {
		if _, reason := g.told(t, connectv1.AdminServiceListOperationsProcedure, "application/json", []byte("{}"), token); reason != want {
			t.Errorf("ListOperations with %q: %s, want %s", token, reason, want)
		}
	}
}
