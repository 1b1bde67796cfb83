package access

import "testing"

func TestOnlyLoopbackHostsAreLoopback(t *testing.T) {
	for _, host := range []string{
		"localhost", "LocalHost:7411", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:7411", "::1",
		"[::ffff:127.0.0.1]:1",
	} {
		if !IsLoopbackHost(host) {
			t.Errorf("IsLoopbackHost(%q) is false, expected true", host)
		}
	}
	for _, host := range []string{
		"", ":7411", "evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "127.1", "0.0.0.0", "[::]:7411",
		"10.0.0.1", "[::1%25lo]", "[::1%lo]:1", "0x7f.0.0.1", "2130706433", "localhost:1:2", "localhost ", "127.0.0.1@evil.example",
	} {
		if IsLoopbackHost(host) {
			t.Errorf("IsLoopbackHost(%q) is true, expected false", host)
		}
	}
}

func TestNewHostsRefusesWhatIsNoHost(t *testing.T) {
	for _, name := range []string{"", "a:1", "a/b", "http://a", "a b", "[::1]:2", "*.example"} {
		if _, err := NewHosts([]string{name}); err == nil {
			t.Errorf("NewHosts accepts %q, expected an error", name)
		}
	}
}

func TestHostsAllowLoopbackAndListedHosts(t *testing.T) {
	h, err := NewHosts([]string{"Skein.internal.", "10.0.0.1", "[2001:db8::1]", "2001:db8::2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"localhost:1", "skein.internal", "SKEIN.internal:7411", "10.0.0.1:80", "[2001:db8::1]:80", "[2001:db8::2]",
	} {
		if !h.Allow(host) || !h.IsOwn(host) {
			t.Errorf("%q: Allow is %v and IsOwn is %v, expected true", host, h.Allow(host), h.IsOwn(host))
		}
	}
	const other = "evil.example"
	if h.Allow(other) || h.IsOwn(other) {
		t.Errorf("%q: Allow is %v and IsOwn is %v, expected false", other, h.Allow(other), h.IsOwn(other))
	}

	// "*" allows other hosts, but does not make them the service's own.
	h, err = NewHosts([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	if !h.Allow(other) || h.IsOwn(other) {
		t.Errorf("%q with *: Allow is %v and IsOwn is %v, expected true and false", other, h.Allow(other), h.IsOwn(other))
	}
}
