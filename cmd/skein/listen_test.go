package main

import (
	"strings"
	"testing"
)

// TestPprofListensOnlyOnLoopback demands that --pprof refuses every address that other machines may
// reach.
func TestPprofListensOnlyOnLoopback(t *testing.T) {
	for _, addr := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "6060"} {
		if l, err := listenPprof(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "--pprof") {
			t.Errorf("%s: %v, %v", addr, l, err)
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
		serve serveCmd
		want  bool
	}{
		{serveCmd{Listen: "127.0.0.1:0"}, true},
		{serveCmd{Listen: "[::1]:7411"}, true},
		{serveCmd{Listen: "127.0.0.1:0", NoConsole: true}, false},
		{serveCmd{Listen: "0.0.0.0:7411", ListenAnywhere: true}, false},
		{serveCmd{Listen: ":7411", ListenAnywhere: true}, false},
		{serveCmd{Listen: ":7411", accessFlags: accessFlags{Tokens: "tokens"}}, true},
		{serveCmd{Listen: ":7411", accessFlags: accessFlags{JWKS: "keys"}}, true},
		{serveCmd{Listen: ":7411", accessFlags: accessFlags{Tokens: "tokens"}, NoConsole: true}, false},
	} {
		if got, err := tt.serve.servesConsole(t.Context()); err != nil || got != tt.want {
			t.Errorf("--listen %s, --tokens %q, --no-console=%v: %v, %v", tt.serve.Listen, tt.serve.Tokens, tt.serve.NoConsole, got, err)
		}
	}
}
