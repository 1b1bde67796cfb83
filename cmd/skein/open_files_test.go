package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConnectionLimitFollowsOpenFiles demands that the default limit is lowered to what the limit
// of open files leaves, and that a higher one is refused.
func TestConnectionLimitFollowsOpenFiles(t *testing.T) {
	for name, c := range map[string]struct {
		given int
		files uint64
		want  int
		err   string
	}{
		"unknown limit":             {0, 0, 10_000, ""},
		"unknown limit, explicit":   {50_000, 0, 50_000, ""},
		"many files":                {0, 1 << 20, 10_000, ""},
		"no limit":                  {0, 1<<64 - 1, 10_000, ""},
		"some files":                {0, 12_000, 6500, ""},
		"few files":                 {0, 1024, 512, ""},
		"hardly any file":           {0, 1, 1, ""},
		"explicit, within":          {14_500, 20_000, 14_500, ""},
		"explicit, beyond":          {14_501, 20_000, 0, "--max-connections must be at most 14500, is 14501: this process may have 20000 files open"},
		"explicit, beyond few ones": {513, 1024, 0, "of which 512 are for its stores"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := connectionLimit(c.given, c.files)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || got != c.want {
				t.Errorf("expected %d, %q, got %d, %v", c.want, c.err, got, err)
			}
		})
	}
}

// TestConnectionsLeaveFilesToTheService demands that nobody is kept out when there are more
// connections than files that the process may open. Before, the service could open neither a
// connection nor a file until clients left.
func TestConnectionsLeaveFilesToTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "skein-with-few-files")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nulimit -n 400 && exec skein \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &serverProcess{t: t, dir: dir, program: program}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.kill()

	for range 500 {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	mustSkein(t, s, "skein", `{"userFollowed":{"userId":"ann","targetUserId":"bob"}}`+"\n", "publish", "--visible")
	if got := mustSkein(t, s, "skein", "", "query", "check", "ann", "bob"); !strings.Contains(got, "explicit") {
		t.Errorf("a caller is answered %s", got)
	}

	text, err := os.ReadFile(filepath.Join(dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []string{"open-files=400", "connections=200", fmt.Sprint("default-connections=", defaultConnections)} {
		if !strings.Contains(string(text), number) {
			t.Errorf("the log does not say %s:\n%s", number, text)
		}
	}
}
