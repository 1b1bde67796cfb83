package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// foreignHost refuses a request for another Host, if the service has no access control. nil: it may be answered.
func (s *Server) checkHost(r *http.Request) *apierror.Failure {
	if s.gate != nil || s.hosts.Allow(r.Host) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_HOST_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to the hosts localhost, 127.0.0.1 and [::1], and %.80q is "+
			"none of them: call it by one, or name the host with --allowed-hosts, or give the service --tokens", r.Host),
	}
}

// foreignOrigin refuses a request of a page whose origin [Options.Origins] does not allow, if the service has no access control. The
// console, where it is served, is a page of the service's own origin.
func (s *Server) checkOrigin(r *http.Request) *apierror.Failure {
	origins := r.Header["Origin"]
	if s.gate != nil {
		return nil
	}
	if len(origins) == 0 {
		return s.checkFetchSite(r)
	}
	if len(origins) == 1 && (s.cors != nil && s.cors.OriginAllowed(r) || s.isConsoleOrigin(origins[0], r)) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to pages of allowed origins, and %.80q is none: "+
			"allow it with --cors-origin", strings.Join(origins, ", ")),
	}
}

// foreignFetch refuses a request that a page of another site makes without an Origin, such as a GET for an image. Such a page could not read
// the answer, but it could have the service work, and learn from the time that it takes. A link that a person follows to the console is let
// in.
func (s *Server) checkFetchSite(r *http.Request) *apierror.Failure {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, a person, or the console
		return nil
	}
	if _, ok := s.methods[r.URL.Path]; !ok && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers no request that a page of another site makes without an Origin "+
			"(Sec-Fetch-Site is %.20q): call it with fetch, and allow the origin of the page with --cors-origin", r.Header.Get("Sec-Fetch-Site")),
	}
}

// ownPage reports whether an origin is that of the console as the caller names the service.
func (s *Server) isConsoleOrigin(origin string, r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return s.console != nil && s.hosts.Known(r.Host) && origin == scheme+r.Host
}

// refuseForeign answers what [Server.foreignHost] or [Server.foreignOrigin] refuses.
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
