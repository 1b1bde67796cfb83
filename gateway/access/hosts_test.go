package access

import "testing"

func TestOnlyLoopbackHostsAreLoopback(t *testing.T) {
	for _, host := range []string{
		"localhost", "LocalHost:7411", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:7411", "::1", "[::ffff:127.0.0.1]:1",
	} {
		if !IsLoopbackHost(host) {
			t.Errorf("%q is loopback", host)
		}
	}
	for _, host := range []string{
		"", ":7411", "evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "127.1", "0.0.0.0", "[::]:7411",
		"10.0.0.1", "[::1%25lo]", "[::1%lo]:1", "0x7f.0.0.1", "2130706433", "localhost:1:2", "localhost ", "127.0.0.1@evil.example",
	} {
		if IsLoopbackHost(host) {
			t.Errorf("%q is not loopback", host)
		}
	}
	for _, name := range []string{"", "a:1", "a/b", "http://a", "a b", "[::1]:2", "*.example"} {
		if _, err := NewHosts([]string{name}); err == nil {
			t.Errorf("%q is taken for a host", name)
		}
	}
}
