package access

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Hosts are the host names by which clients may call a service without access control: those that
// mean loopback, and those that --allowed-hosts lists. A web page can make its own host name
// resolve to 127.0.0.1 (DNS rebinding). The browser then treats the service as the page's own
// origin and lets the page call it. Such a call has the host name of the page in its Host header,
// so the service refuses it.
type Hosts struct {
	// allowsAny is set if --allowed-hosts has "*".
	allowsAny bool
	// named has the listed hosts, in the form that hostName returns.
	named map[string]bool
}

// NewHosts returns Hosts with the given names and addresses, in addition to those that mean
// loopback. "*" allows all.
func NewHosts(allowed []string) (Hosts, error) {
	h := Hosts{named: map[string]bool{}}
	for _, name := range allowed {
		if name == "*" {
			h.allowsAny = true
			continue
		}
		// With a colon or a bracket, it must be an IPv6 address: a colon could also begin a port.
		isName := PlainHost(name) && !strings.ContainsAny(name, ":[]")
		isAddress := net.ParseIP(strings.Trim(name, "[]")) != nil
		if !isName && !isAddress {
			return Hosts{}, fmt.Errorf("access: %q is no host: want a name or an address without a port, or *", name)
		}
		h.named[hostName(name)] = true
	}
	return h, nil
}

// Allow reports whether a service without access control answers requests with this Host header.
func (h Hosts) Allow(host string) bool { return h.allowsAny || h.IsOwn(host) }

// IsOwn reports whether the value of a Host header means loopback, or is one that --allowed-hosts
// lists by name. No web page can have such a host as its own.
func (h Hosts) IsOwn(host string) bool { return IsLoopbackHost(host) || h.named[hostName(host)] }

// IsLoopbackHost reports whether the value of a Host header, with or without a port, means loopback
// without a DNS lookup: localhost, 127.0.0.0/8 or ::1.
func IsLoopbackHost(host string) bool {
	name := hostName(host)
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// hostName returns the host in the value of a Host header, in the form in which hosts are compared:
// without a port, without the brackets of an IPv6 address, without a dot at the end, and in lower
// case.
func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // there is no port
		name = host
		inBrackets, ok := strings.CutPrefix(host, "[")
		if ok {
			name = strings.TrimSuffix(inBrackets, "]")
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// PlainHost reports whether a value is not empty and consists of the characters of a name or an
// address, perhaps with a port. net/http accepts other values, too.
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
