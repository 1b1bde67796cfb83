package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// webPage makes requests as a page of the web has a browser make them.
type webPage struct {
	*world
	h2 *http.Transport
}

func newWebPage(t *testing.T, w *world) *webPage {
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	s := &webPage{w, &http.Transport{Protocols: &h2c}}
	t.Cleanup(s.h2.CloseIdleConnections)
	return s
}

// ask sends a request with a Host and perhaps an Origin over HTTP/1.1 and HTTP/2, and returns its
// status and reason, which are the same.
func (s *webPage) ask(method, path, host, origin, body string) string {
	s.t.Helper()
	var got [2]string
	for i, transport := range []http.RoundTripper{s.http.Transport, s.h2} {
		ctx, cancel := context.WithCancel(s.t.Context())
		req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			s.t.Fatal(err)
		}
		got[i] = fmt.Sprint(res.StatusCode)
		if res.StatusCode != http.StatusOK { // an answer of 200 may be a stream without an end
			text, err := io.ReadAll(res.Body)
			if err != nil {
				s.t.Fatal(err)
			}
			var e jsonError
			if json.Unmarshal(text, &e) == nil {
				got[i] = strings.TrimSpace(got[i] + " " + e.reason())
			}
		}
		cancel()
		res.Body.Close()
	}
	if got[0] != got[1] {
		s.t.Errorf("%s %s for %q from %q: %q", method, path, host, origin, got)
	}
	return got[0]
}

const (
	wrongHost   = "403 HOST_NOT_ALLOWED"
	wrongOrigin = "403 ORIGIN_NOT_ALLOWED"
)

// Without access control a page whose name was made to mean this machine is refused on every path,
// and so is a page of an origin that is not allowed.
func TestDNSRebinding(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters, func(o *worldOptions) { o.Operator, o.Console = idle{}, true })
	s := newWebPage(t, w)
	paths := []string{
		"/healthz", "/readyz", "/metrics", "/console/", "/", "/nowhere",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	}
	for path := range w.server.methods {
		paths = append(paths, path)
	}
	if len(paths) < 40 {
		t.Fatalf("only %d paths", len(paths))
	}
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, host := range []string{"evil.example", "evil.example:7411", "127.0.0.1.evil.example", "0.0.0.0:7411"} {
				if got := s.ask(method, path, host, "http://"+host, "{}"); got != wrongHost {
					t.Errorf("%s %s for %s: %s", method, path, host, got)
				}
			}
			if got := s.ask(method, path, "localhost", "http://evil.example", "{}"); got != wrongOrigin {
				t.Errorf("%s %s: %s", method, path, got)
			}
		}
	}
	follows := `{"events":[{"userFollowed":{"userId":"ann","targetUserId":"bob"}}]}`
	publish := connectv1.EventServicePublishProcedure
	for _, c := range []struct{ host, origin, want string }{
		{"evil.example", "", wrongHost},
		{"localhost", "null", wrongOrigin},
		{"localhost", "http://localhost:3000", wrongOrigin},
		{"localhost:1", "", "200"},
		{"[::1]:7411", "", "200"},
	} {
		if got := s.ask(http.MethodPost, publish, c.host, c.origin, follows); got != c.want {
			t.Errorf("Publish for %s from %q: %s, want %s", c.host, c.origin, got, c.want)
		}
	}
	// An allowed Host on a connection lets no other one in after it.
	call := marshal(t, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "cid")}})
	if got := pipelined(t, w.url, publish, call, "localhost", "evil.example"); got != "200 403 200" {
		t.Errorf("behind a good call: %s", got)
	}
	// Without a Host, as HTTP/1.0 allows it.
	if got := rawStatus(t, w.url, "GET /healthz HTTP/1.0\r\n\r\n"); got != "403" {
		t.Errorf("no Host: %s", got)
	}
	if _, _, text := w.get("/metrics"); !bytes.Contains(text, []byte(`reason="HOST_NOT_ALLOWED"} `)) ||
		bytes.Contains(text, []byte(`reason="HOST_NOT_ALLOWED"} 0`)) {
		t.Error("refused hosts are not counted")
	}
}

// What --allowed-hosts and --cors-origin name is let in, and so is every host where callers are
// asked who they are.
func TestAllowedHosts(t *testing.T) {
	named := newWebPage(t, newWorld(t, func(o *worldOptions) {
		o.AllowedHosts, o.Origins = []string{"Skein.internal", "10.0.0.7"}, []string{"https://app.example"}
	}))
	open := newWebPage(t, newWorld(t, func(o *worldOptions) { o.AllowedHosts, o.Origins = []string{"*"}, []string{"*"} }))
	list, body := connectv1.GraphServiceListFollowersProcedure, `{"userId":"ann"}`
	for _, c := range []struct {
		s                  *webPage
		host, origin, want string
	}{
		{named, "skein.internal:7411", "", "200"},
		{named, "SKEIN.internal.", "", "200"},
		{named, "10.0.0.7", "https://app.example", "200"},
		{named, "localhost", "https://app.example", "200"},
		{named, "evil.example", "https://app.example", wrongHost},
		{named, "skein.internal", "https://evil.example", wrongOrigin},
		{named, "skein.internal", "http://skein.internal", wrongOrigin},
		{open, "evil.example", "http://evil.example", "200"},
	} {
		if got := c.s.ask(http.MethodPost, list, c.host, c.origin, body); got != c.want {
			t.Errorf("%s from %q: %s, want %s", c.host, c.origin, got, c.want)
		}
	}
	g := newGuarded(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+list, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "https://evil.example")
	if status, _, text := g.as(g.tokens["reader"]).do(req); status != http.StatusOK {
		t.Errorf("with a token: %d %s", status, text)
	}
}

// TestPagesOfOtherSitesMakeNoRequests: a page of another site cannot have its browser ask for an
// image or a script, which has no Origin. Programs, people and the console may ask.
func TestPagesOfOtherSitesMakeNoRequests(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Console = true })
	list := connectv1.GraphServiceListFollowersProcedure + "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"userId":"ann"}`)
	for _, c := range []struct {
		name, path string
		headers    []string
		want       string
	}{
		{"a program", list, nil, "200"},
		{"a person who types the address", list, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, "200"},
		{"the console", list, []string{"Sec-Fetch-Site", "same-origin"}, "200"},
		{"an image on a page of another site", list, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, wrongOrigin},
		{"an image on a page at another port", list, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, wrongOrigin},
		{"an image of metrics", "/metrics", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, wrongOrigin},
		{
			"a link to a method", list,
			[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
			wrongOrigin,
		},
		{
			"a link to the console", "/console/",
			[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
			"200",
		},
		{
			"a frame of the console", "/console/",
			[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
			wrongOrigin,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(c.headers); i += 2 {
				req.Header.Set(c.headers[i], c.headers[i+1])
			}
			status, _, body := w.do(req)
			got := fmt.Sprint(status)
			if status != http.StatusOK {
				got += " " + parseError(t, body).reason()
			}
			if got != c.want {
				t.Errorf("expected %s, got %s", c.want, got)
			}
		})
	}
}

// TestTracedPagesMayCall: the headers that tracing libraries add to every request pass the
// preflight.
func TestTracedPagesMayCall(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Origins = []string{"https://app.example"} })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, w.url+connectv1.GraphServiceCheckFollowsProcedure, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	const wanted = "baggage,connect-protocol-version,content-type,sentry-trace,traceparent,tracestate"
	req.Header.Set("Origin", "https://app.example")
	req.Header.Set("Access-Control-Request-Method", http.MethodPost)
	req.Header.Set("Access-Control-Request-Headers", wanted)
	if _, header, _ := w.do(req); header.Get("Access-Control-Allow-Headers") != wanted {
		t.Errorf("expected %s to be allowed, got %q", wanted, header.Get("Access-Control-Allow-Headers"))
	}
}

// pipelined sends a plain call for each host on one connection, for the loop, then a last one, and
// returns the statuses.
func pipelined(t *testing.T, url, path string, body []byte, hosts ...string) string {
	t.Helper()
	var text strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&text, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n%s",
			path, host, len(body), body)
	}
	text.WriteString("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	return rawStatus(t, url, text.String())
}

// rawStatus sends bytes and returns the statuses of what comes back.
func rawStatus(t *testing.T, url, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	var statuses []string
	for _, part := range bytes.Split(all, []byte("HTTP/1."))[1:] {
		statuses = append(statuses, string(part[2:5]))
	}
	return strings.Join(statuses, " ")
}
