package programs

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWaitingEndsWithTheProgram(t *testing.T) {
	// The program is this test binary, which runs no test and ends.
	program, err := start(t.Context(), "the program", os.Args[0], "-test.run=^$")
	if err != nil {
		t.Fatal(err)
	}
	const want = "the program ended before it was ready"
	err = program.waitUntil(t.Context(), "ready", func(context.Context) bool { return false })
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("waitUntil: got error %v, want one with %q", err, want)
	}
	if err := program.Stop(); err != nil {
		t.Errorf("Stop of a program that has ended: got error %v, want none", err)
	}
}

func TestPortIsWrittenToFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	if err := writePort(file, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "4711\n"; string(got) != want {
		t.Errorf("port file: got %q, want %q", got, want)
	}
}

func TestOutputTailKeepsTheEnd(t *testing.T) {
	var tail outputTail
	for range 100 {
		if _, err := tail.Write([]byte(strings.Repeat("x", 99) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tail.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}

	const wantSuffix = "x\nthe end"
	if got := tail.String(); len(got) != outputTailBytes || !strings.HasSuffix(got, wantSuffix) {
		t.Errorf("tail: got %d bytes, %q, want %d bytes that end with %q", len(got), got, outputTailBytes, wantSuffix)
	}
}

func TestSettingsOfSkeinAreRemoved(t *testing.T) {
	got := WithoutSkeinSettings([]string{"PATH=/bin", "SKEIN_DATA=/x", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("WithoutSkeinSettings: got %q, want %q", got, want)
	}
}
