package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"

	"github.com/skein-feed/skein/gateway/internal/http1"
)

// corsMaxAge is the time in seconds for which a browser may reuse the answer to a preflight. It is
// the longest that Chromium allows.
const corsMaxAge = 7200

// tracingHeaders returns the headers that tracing libraries add to the requests of a page: W3C
// Trace Context and Baggage, and Sentry. If they were not allowed, a page with such a library could
// not call at all.
func tracingHeaders() []string {
	return []string{http1.TraceParentHeader, "Tracestate", "Baggage", "Sentry-Trace"}
}

// newCORS returns a handler that lets pages of the origins call from a browser, or nil if there are
// no origins. Such pages may send and read the headers that the protocols of browsers need, the
// Authorization header, request ids and the lag. newCORS does not allow credentials that a browser
// adds by itself, such as cookies: the page must set the header that authenticates the caller.
func newCORS(origins []string) (*cors.Cors, error) {
	for _, origin := range origins {
		if origin == "*" {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" ||
			origin != u.Scheme+"://"+u.Host || strings.Contains(origin, "*") {
			return nil, fmt.Errorf("gateway: %q is no origin: want SCHEME://HOST or SCHEME://HOST:PORT, without a path", origin)
		}
	}
	if len(origins) == 0 {
		return nil, nil //nolint:nilnil // no page may call
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: connectcors.AllowedMethods(),
		AllowedHeaders: slices.Concat(connectcors.AllowedHeaders(), tracingHeaders(),
			[]string{"Authorization", "Last-Event-ID", RequestIDHeader}),
		ExposedHeaders: append(connectcors.ExposedHeaders(), "WWW-Authenticate", LagHeader, ErrorIDHeader),
		MaxAge:         corsMaxAge,
	}), nil
}

// isPreflight reports whether a request is a CORS preflight, which calls no method.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}
