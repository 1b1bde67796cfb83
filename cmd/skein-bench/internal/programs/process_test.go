package programs

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWaitingEndsWithTheProgram(t *testing.T) {
	// The program is this test binary, which runs no test and ends.
	p, err := start(t.Context(), "the program", os.Args[0], "-test.run=^$")
	if err != nil {
		t.Fatal(err)
	}
	err = p.waitUntil(t.Context(), "ready", func(context.Context) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "the program ended before it was ready") {
		t.Errorf("expected an error with the end of the program, got %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("expected that an ended program can be stopped, got %v", err)
	}
}

func TestPortIsWrittenToFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	if err := writePort(file, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != "4711\n" {
		t.Errorf("expected the port 4711, got %q, %v", data, err)
	}
}

func TestOutputTailKeepsTheEnd(t *testing.T) {
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
		t.Errorf("expected %d bytes that end with \"the end\", got %d that end with %q", outputTailBytes, len(s), s[len(s)-10:])
	}
}

func TestSettingsOfSkeinAreRemoved(t *testing.T) {
	got := WithoutSkeinSettings([]string{"PATH=/bin", "SKEIN_DATA=/x", "HOME=/"})
	if strings.Join(got, " ") != "PATH=/bin HOME=/" {
		t.Errorf("expected only PATH and HOME, got %v", got)
	}
}
