package main

import (
	"strings"
	"testing"
)

// TestPprofListensOnlyOnLoopback demands that --pprof refuses every address that other machines may
// reach.
func TestPprofListensOnlyOnLoopback(t *testing.T) {
	for _, addr := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "6060"} {
		l, err := listenPprof(t.Context(), addr)
		if err == nil {
			l.Close()
			t.Errorf("listenPprof(%q): got a listener, want an error", addr)
		} else if !strings.Contains(err.Error(), "--pprof") {
			t.Errorf("listenPprof(%q): got %v, want an error that names --pprof", addr, err)
		}
	}

	l, err := listenPprof(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestConsoleIsServedOnLoopbackOrWithAccessControl demands that the console is not served where
// strangers may reach it without credentials, and not with --no-console.
func TestConsoleIsServedOnLoopbackOrWithAccessControl(t *testing.T) {
	for _, tt := range []struct {
		name  string
		serve serveCmd
		want  bool
	}{
		{"loopback", serveCmd{Listen: "127.0.0.1:0"}, true},
		{"IPv6 loopback", serveCmd{Listen: "[::1]:7411"}, true},
		{"loopback with --no-console", serveCmd{Listen: "127.0.0.1:0", NoConsole: true}, false},
		{"all IPv4 addresses", serveCmd{Listen: "0.0.0.0:7411", ListenAnywhere: true}, false},
		{"all addresses", serveCmd{Listen: ":7411", ListenAnywhere: true}, false},
		{"all addresses with tokens", serveCmd{Listen: ":7411", accessFlags: accessFlags{Tokens: "tokens"}}, true},
		{"all addresses with JWTs", serveCmd{Listen: ":7411", accessFlags: accessFlags{JWKS: "keys"}}, true},
		{
			"all addresses with tokens and --no-console",
			serveCmd{Listen: ":7411", accessFlags: accessFlags{Tokens: "tokens"}, NoConsole: true},
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.serve.servesConsole(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("servesConsole: got %v, want %v", got, tt.want)
			}
		})
	}
}
