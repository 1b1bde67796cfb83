package access

import "testing"

func TestOnlyLoopbackHostsAreLoopback(t *testing.T) {
	for _, host := range []string{
		"localhost", "LocalHost:7411", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:7411", "::1",
		"[::ffff:127.0.0.1]:1",
	} {
		if !IsLoopbackHost(host) {
			t.Errorf("IsLoopbackHost(%q): got false, want true", host)
		}
	}
	for _, host := range []string{
		"", ":7411", "evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "127.1", "0.0.0.0", "[::]:7411",
		"10.0.0.1", "[::1%25lo]", "[::1%lo]:1", "0x7f.0.0.1", "2130706433", "localhost:1:2", "localhost ", "127.0.0.1@evil.example",
	} {
		if IsLoopbackHost(host) {
			t.Errorf("IsLoopbackHost(%q): got true, want false", host)
		}
	}
}

func TestNewHostsRefusesWhatIsNoHost(t *testing.T) {
	for _, name := range []string{"", "a:1", "a/b", "http://a", "a b", "[::1]:2", "*.example"} {
		if _, err := NewHosts([]string{name}); err == nil {
			t.Errorf("NewHosts(%q): got no error, want one", name)
		}
	}
}

// mustNewHosts returns the Hosts of a list of names.
func mustNewHosts(t *testing.T, names ...string) Hosts {
	t.Helper()
	h, err := NewHosts(names)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// expectAllowAndOwn fails the test unless Allow and IsOwn return the given values for a host.
func expectAllowAndOwn(t *testing.T, h Hosts, host string, wantAllow, wantIsOwn bool) {
	t.Helper()
	if got := h.Allow(host); got != wantAllow {
		t.Errorf("Allow(%q): got %t, want %t", host, got, wantAllow)
	}
	if got := h.IsOwn(host); got != wantIsOwn {
		t.Errorf("IsOwn(%q): got %t, want %t", host, got, wantIsOwn)
	}
}

func TestHostsAllowLoopbackAndListedHosts(t *testing.T) {
	const other = "evil.example"
	t.Run("listed hosts", func(t *testing.T) {
		h := mustNewHosts(t, "Skein.internal.", "10.0.0.1", "[2001:db8::1]", "2001:db8::2")
		for _, host := range []string{
			"localhost:1", "skein.internal", "SKEIN.internal:7411", "10.0.0.1:80", "[2001:db8::1]:80", "[2001:db8::2]",
		} {
			expectAllowAndOwn(t, h, host, true, true)
		}
		expectAllowAndOwn(t, h, other, false, false)
	})
	t.Run("a star allows other hosts but does not make them the service's own", func(t *testing.T) {
		expectAllowAndOwn(t, mustNewHosts(t, "*"), other, true, false)
	})
}
