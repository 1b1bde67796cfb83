package access

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Hosts are the host names by which a service without access control may be called: those that mean
// loopback, and those that --allowed-hosts lists. A web page can make its own host name resolve to
// 127.0.0.1 (DNS rebinding). The browser then treats the service as the page's own origin and lets
// the page call it. Such a call has the host name of the page in its Host header, so it is refused.
type Hosts struct {
	any   bool
	named map[string]bool
}

// NewHosts returns Hosts with the given names and addresses in addition to those that mean
// loopback. "*" allows all.
func NewHosts(allowed []string) (Hosts, error) {
	h := Hosts{named: map[string]bool{}}
	for _, name := range allowed {
		switch {
		case name == "*":
			h.any = true
		case !PlainHost(name), strings.ContainsAny(name, ":[]") && net.ParseIP(strings.Trim(name, "[]")) == nil:
			return Hosts{}, fmt.Errorf("access: %q is no host: want a name or an address without a port, or *", name)
		default:
			h.named[hostName(name)] = true
		}
	}
	return h, nil
}

// Allow reports whether a service without access control answers requests with this Host header.
func (h Hosts) Allow(host string) bool {
	return h.any || h.IsOwn(host)
}

// IsOwn reports whether a Host means loopback, or is one that --allowed-hosts lists by name. No web
// page can have such a host as its own.
func (h Hosts) IsOwn(host string) bool { return IsLoopbackHost(host) || h.named[hostName(host)] }

// IsLoopbackHost reports whether the Host of a request, with or without a port, means loopback
// without a DNS lookup: localhost, 127.0.0.0/8 or ::1.
func IsLoopbackHost(host string) bool {
	name := hostName(host)
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// hostName returns a Host without its port, in the form in which names are compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inside, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inside, "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// PlainHost reports whether a value consists of the characters of a name or an address, perhaps
// with a port. net/http accepts other values too.
func PlainHost[T string | []byte](v T) bool {
	for i := range len(v) {
		switch c := v[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return len(v) > 0
}
