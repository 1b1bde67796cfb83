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

// webPage sends requests as a browser sends them for a web page.
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

// ask sends a request with a Host and perhaps an Origin over HTTP/1.1 and over HTTP/2. It checks
// that both answers have the same status and reason, and returns these.
func (s *webPage) ask(method, path, host, origin, body string) string {
	s.t.Helper()
	var answers [2]string
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
		answers[i] = fmt.Sprint(res.StatusCode)

		// The body of an answer with status 200 is not read, because it may be a stream without an
		// end.
		if res.StatusCode != http.StatusOK {
			text, err := io.ReadAll(res.Body)
			if err != nil {
				s.t.Fatal(err)
			}
			var e jsonError
			if json.Unmarshal(text, &e) == nil {
				answers[i] = strings.TrimSpace(answers[i] + " " + e.reason())
			}
		}
		cancel()
		res.Body.Close()
	}
	if answers[0] != answers[1] {
		s.t.Errorf("%s %s for %q from %q: got %q over HTTP/2, want %q as over HTTP/1.1", method, path, host, origin, answers[1], answers[0])
	}
	return answers[0]
}

const (
	wrongHost   = "403 HOST_NOT_ALLOWED"
	wrongOrigin = "403 ORIGIN_NOT_ALLOWED"
)

// TestDNSRebinding checks a server without authentication. It must refuse pages whose host name was
// made to resolve to this machine, and pages of an origin that is not allowed, on every path.
func TestDNSRebinding(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters, func(o *worldOptions) {
		o.Operator = idle{}
		o.Console = true
	})
	s := newWebPage(t, w)
	paths := []string{
		"/healthz", "/readyz", "/metrics", "/console/", "/", "/nowhere",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	}
	for path := range w.server.methods {
		paths = append(paths, path)
	}
	if len(paths) < 40 {
		t.Fatalf("got %d paths, want at least 40", len(paths))
	}

	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, host := range []string{"evil.example", "evil.example:7411", "127.0.0.1.evil.example", "0.0.0.0:7411"} {
				if got := s.ask(method, path, host, "http://"+host, "{}"); got != wrongHost {
					t.Errorf("%s %s for %s: got %s, want %s", method, path, host, got, wrongHost)
				}
			}
			if got := s.ask(method, path, "localhost", "http://evil.example", "{}"); got != wrongOrigin {
				t.Errorf("%s %s from another origin: got %s, want %s", method, path, got, wrongOrigin)
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
			t.Errorf("Publish for %s from %q: got %s, want %s", c.host, c.origin, got, c.want)
		}
	}

	// An allowed Host does not help a later request on the same connection.
	call := marshal(t, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "cid")}})
	if got := pipelined(t, w.url, publish, call, "localhost", "evil.example"); got != "200 403 200" {
		t.Errorf("after a good call on the same connection: got the statuses %s, want 200 403 200", got)
	}

	// HTTP/1.0 allows requests without a Host.
	if got := rawStatus(t, w.url, "GET /healthz HTTP/1.0\r\n\r\n"); got != "403" {
		t.Errorf("without a Host: got status %s, want 403", got)
	}

	if w.count("skein_rpc_refusals_total", "reason", "HOST_NOT_ALLOWED") == 0 {
		t.Error("got no refused hosts in the metrics, want some")
	}
}

// TestAllowedHosts checks that a server without authentication admits only the hosts and origins
// that are named by --allowed-hosts and --cors-origin. With authentication, every host is admitted.
func TestAllowedHosts(t *testing.T) {
	restricted := newWebPage(t, newWorld(t, func(o *worldOptions) {
		o.AllowedHosts = []string{"Skein.internal", "10.0.0.7"}
		o.Origins = []string{"https://app.example"}
	}))
	open := newWebPage(t, newWorld(t, func(o *worldOptions) {
		o.AllowedHosts = []string{"*"}
		o.Origins = []string{"*"}
	}))
	const list = connectv1.GraphServiceListFollowersProcedure
	const body = `{"userId":"ann"}`
	for _, c := range []struct {
		page               *webPage
		host, origin, want string
	}{
		{restricted, "skein.internal:7411", "", "200"},
		{restricted, "SKEIN.internal.", "", "200"},
		{restricted, "10.0.0.7", "https://app.example", "200"},
		{restricted, "localhost", "https://app.example", "200"},
		{restricted, "evil.example", "https://app.example", wrongHost},
		{restricted, "skein.internal", "https://evil.example", wrongOrigin},
		{restricted, "skein.internal", "http://skein.internal", wrongOrigin},
		{open, "evil.example", "http://evil.example", "200"},
	} {
		if got := c.page.ask(http.MethodPost, list, c.host, c.origin, body); got != c.want {
			t.Errorf("%s from %q: got %s, want %s", c.host, c.origin, got, c.want)
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
		t.Errorf("any host with a token: got status %d and %s, want 200", status, text)
	}
}

// TestPagesOfOtherSitesMakeNoRequests checks that a page of another site cannot have the browser
// load an image or a script from the service. Such requests have no Origin. Programs, people who
// type an address, and the console may send requests.
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
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestTracedPagesMayCall checks that a preflight request allows the headers that tracing libraries
// add to every request.
func TestTracedPagesMayCall(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Origins = []string{"https://app.example"} })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, w.url+connectv1.GraphServiceCheckFollowsProcedure, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	const headers = "baggage,connect-protocol-version,content-type,sentry-trace,traceparent,tracestate"
	req.Header.Set("Origin", "https://app.example")
	req.Header.Set("Access-Control-Request-Method", http.MethodPost)
	req.Header.Set("Access-Control-Request-Headers", headers)
	_, header, _ := w.do(req)
	if allowed := header.Get("Access-Control-Allow-Headers"); allowed != headers {
		t.Errorf("Access-Control-Allow-Headers: got %q, want %q", allowed, headers)
	}
}

// pipelined sends a plain call for each host on one connection, which the HTTP loop serves, and
// then a request that closes the connection. It returns the statuses.
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

// rawStatus sends requests as text on one connection, the last of which must close it. It returns
// the statuses of the answers.
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
	answers, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	var statuses []string
	for _, answer := range bytes.Split(answers, []byte("HTTP/1."))[1:] {
		statuses = append(statuses, string(answer[2:5])) // after the minor version and a space
	}
	return strings.Join(statuses, " ")
}
