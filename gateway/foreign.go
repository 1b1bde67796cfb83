package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// IsLoopbackHost reports whether the Host of a request, with or without a port, means loopback whatever any DNS server answers:
// localhost, 127.0.0.0/8 or ::1.
func IsLoopbackHost(host string) bool { return admission.IsLoopbackHost(host) }

// foreignHost refuses a request for another Host, if the service has no access control. nil: it may be answered.
func (s *Server) foreignHost(r *http.Request) *apierror.Failure {
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
func (s *Server) foreignOrigin(r *http.Request) *apierror.Failure {
	origins := r.Header["Origin"]
	if s.gate != nil || len(origins) == 0 {
		return nil
	}
	if len(origins) == 1 && (s.cors != nil && s.cors.OriginAllowed(r) || s.ownPage(origins[0], r)) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to pages of allowed origins, and %.80q is none: "+
			"allow it with --cors-origin", strings.Join(origins, ", ")),
	}
}

// ownPage reports whether an origin is that of the console as the caller names the service.
func (s *Server) ownPage(origin string, r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return s.console != nil && s.hosts.Known(r.Host) && origin == scheme+r.Host
}

// refuseForeign answers what [Server.foreignHost] or [Server.foreignOrigin] refuses.
func (s *Server) refuseForeign(w http.ResponseWriter, r *http.Request, f *apierror.Failure) {
	if _, ok := s.methods[r.URL.Path]; ok {
		s.turnAway(w, r, f)
		return
	}
	s.metrics.Refused(f)
	if err := s.errorWriter.Write(w, r, f.ConnectError()); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}
