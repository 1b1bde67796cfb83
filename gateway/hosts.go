package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// hosts are the names by which a service without access control may be called: those that mean loopback, and some more. A page of the
// web can have its own name mean 127.0.0.1 (DNS rebinding), and its browser then lets it call the service as its own origin. Such a call
// bears the name of the page.
type hosts struct {
	any   bool
	named map[string]bool
}

func newHosts(allowed []string) (hosts, error) {
	h := hosts{named: map[string]bool{}}
	for _, name := range allowed {
		switch {
		case name == "*":
			h.any = true
		case !plainHost([]byte(name)), strings.ContainsAny(name, ":[]") && net.ParseIP(strings.Trim(name, "[]")) == nil:
			return hosts{}, fmt.Errorf("gateway: %q is no host: want a name or an address without a port, or *", name)
		default:
			h.named[hostName(name)] = true
		}
	}
	return h, nil
}

// allow reports whether a service without access control answers to the Host.
func (h hosts) allow(host string) bool {
	return h.any || IsLoopbackHost(host) || h.named[hostName(host)]
}

// IsLoopbackHost reports whether the Host of a request, with or without a port, means loopback whatever any DNS server answers:
// localhost, 127.0.0.0/8 or ::1.
func IsLoopbackHost(host string) bool {
	name := hostName(host)
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// hostName is a Host without its port, as names are compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inside, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inside, "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// foreignHost refuses a request for another Host, if the service has no access control. nil: it may be answered.
func (s *Server) foreignHost(r *http.Request) *apierror.Failure {
	if s.gate != nil || s.hosts.allow(r.Host) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_HOST_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to the hosts localhost, 127.0.0.1 and [::1], and %.80q is "+
			"none of them: call it by one, or name the host with --allowed-hosts, or give the service --tokens", r.Host),
	}
}

// foreignOrigin refuses a request of a page whose origin [Options.Origins] does not allow, if the service has no access control.
func (s *Server) foreignOrigin(r *http.Request) *apierror.Failure {
	origins := r.Header["Origin"]
	if s.gate != nil || len(origins) == 0 || len(origins) == 1 && s.cors != nil && s.cors.OriginAllowed(r) {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodePermissionDenied, Reason: skeinv1.Reason_REASON_ORIGIN_NOT_ALLOWED,
		Text: fmt.Sprintf("without access control the service answers only to pages of allowed origins, and %.80q is none: "+
			"allow it with --cors-origin", strings.Join(origins, ", ")),
	}
}

// refuseForeign answers what [Server.foreignHost] or [Server.foreignOrigin] refuses.
func (s *Server) refuseForeign(w http.ResponseWriter, r *http.Request, f *apierror.Failure) {
	if _, ok := s.methods[r.URL.Path]; ok {
		s.turnAway(w, r, f)
		return
	}
	s.metrics.refused(f)
	if err := s.errorWriter.Write(w, r, f.ConnectError()); err != nil {
		s.log.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}
