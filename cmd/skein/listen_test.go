package main

import (
	"strings"
	"testing"
)

func TestPprofListensHere(t *testing.T) {
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
