package programs

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramThatEnds starts the test program itself, which ends at once.
func TestProgramThatEnds(t *testing.T) {
	p, err := start(t.Context(), "the program", os.Args[0], "-test.run=^$")
	if err != nil {
		t.Fatal(err)
	}
	err = p.waitUntil(t.Context(), "ready", func(context.Context) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "the program ended before it was ready") {
		t.Errorf("until: %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestWritePort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	if err := writePort(file, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != "4711\n" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestTailOfOutput(t *testing.T) {
	var out outputTail
	for range 100 {
		if _, err := out.Write([]byte(strings.Repeat("x", 99) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := out.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); len(s) != outputTailBytes || !strings.HasSuffix(s, "x\nthe end") {
		t.Errorf("%d bytes, the last %q", len(s), s[len(s)-10:])
	}
}

func TestWithoutSettings(t *testing.T) {
	got := WithoutSkeinSettings([]string{"PATH=/bin", "SKEIN_DATA=/x", "HOME=/"})
	if strings.Join(got, " ") != "PATH=/bin HOME=/" {
		t.Errorf("%v", got)
	}
}
