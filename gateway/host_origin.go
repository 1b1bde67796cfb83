package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// checkHost refuses a request that was sent to a host name that is not allowed. Only a server
// without access control checks it, because a web page whose name resolves to this machine could
// otherwise call the server ([access.Hosts]). It returns nil if the request is admitted.
func (s *Server) checkHost(r *http.Request) *apierror.Failure {
	if s.authenticator != nil || s.hosts.Allow(r.Host) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_HOST_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to the hosts localhost, 127.0.0.1 and [::1], and %.80q is "+
			"none of them: call it by one, or name the host with --allowed-hosts, or give the service --tokens", r.Host),
	}
}

// checkOrigin refuses a request of a web page whose origin is not allowed. Only a server without
// access control checks it. Allowed are [Options.Origins] and, if the server has a console, its own
// origin. checkOrigin returns nil if the request is admitted.
func (s *Server) checkOrigin(r *http.Request) *apierror.Failure {
	if s.authenticator != nil {
		return nil
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return s.checkFetchSite(r)
	}
	// A browser sends one Origin. Of two, it would be open which one counts.
	if len(origins) == 1 {
		isListed := s.cors != nil && s.cors.OriginAllowed(r)
		if isListed || s.isConsoleOrigin(origins[0], r) {
			return nil
		}
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to pages of allowed origins, and %.80q is none: "+
			"allow it with --cors-origin", strings.Join(origins, ", ")),
	}
}

// checkFetchSite refuses a request that a page of another site makes without an Origin header, such
// as a GET for an image. The page could not read the answer, but it could make the server work, and
// learn from the time that the answer takes. A link that a person follows to a page, such as the
// console, is admitted.
func (s *Server) checkFetchSite(r *http.Request) *apierror.Failure {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // not a browser, a person, or the console
		return nil
	}
	_, isMethod := s.methods[r.URL.Path]
	if !isMethod && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers no request that a page of another site makes without an Origin "+
			"(Sec-Fetch-Site is %.20q): call it with fetch, and allow the origin of the page with --cors-origin", r.Header.Get("Sec-Fetch-Site")),
	}
}

// isConsoleOrigin reports whether an origin is that of the console, as the caller addresses the
// server. The host must be a known one: a host that only "*" allows could be that of any web page.
func (s *Server) isConsoleOrigin(origin string, r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return s.console != nil && s.hosts.IsOwn(r.Host) && origin == scheme+r.Host
}

// writeForeignRefusal answers a request that checkHost or checkOrigin refuses. Only a call of a
// method counts in the metrics of methods.
func (s *Server) writeForeignRefusal(w http.ResponseWriter, r *http.Request, f *apierror.Failure) {
	if _, ok := s.methods[r.URL.Path]; ok {
		s.refuseCall(w, r, f)
		return
	}
	s.metrics.Refused(f)
	if err := s.errorWriter.Write(w, r, f.ConnectError()); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}
