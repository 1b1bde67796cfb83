package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// What the pages of allowed origins may send and see: what the protocols that browsers speak need, who calls, and the lag.
const (
	corsMethods = "GET, POST"
	corsHeaders = "Authorization, Content-Type, Connect-Protocol-Version, Connect-Timeout-Ms, Grpc-Timeout, X-Grpc-Web, X-User-Agent"
	corsExposed = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, WWW-Authenticate, " + LagHeader
	// corsMaxAge is for how long, in seconds, a browser need not ask again. The longest that any browser takes.
	corsMaxAge = "7200"
)

// checkOrigins refuses what no browser would send as Origin.
func checkOrigins(origins []string) error {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host) {
			return fmt.Errorf("gateway: %q is no origin: want SCHEME://HOST or SCHEME://HOST:PORT, without a path", origin)
		}
	}
	return nil
}

// crossOrigin tells browsers that pages of allowed origins may call, and answers those who ask that before they do. It never
// allows credentials that a browser sends by itself: who calls is told by a header that the page must set.
func (s *Server) crossOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	all := slices.Contains(s.origins, "*")
	if origin == "" || !all && !slices.Contains(s.origins, origin) {
		return false
	}
	if all {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
