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
	for name, tt := range map[string]struct {
		given   int    // what --max-connections says; 0 is the default
		files   uint64 // limit of open files; 0 if it is unknown
		want    int
		wantErr string
	}{
		"unknown limit":           {given: 0, files: 0, want: 10_000},
		"unknown limit, explicit": {given: 50_000, files: 0, want: 50_000},
		"many files":              {given: 0, files: 1 << 20, want: 10_000},
		"no limit":                {given: 0, files: 1<<64 - 1, want: 10_000},
		"some files":              {given: 0, files: 12_000, want: 6500},
		"few files":               {given: 0, files: 1024, want: 512},
		"hardly any file":         {given: 0, files: 1, want: 1},
		"explicit, within":        {given: 14_500, files: 20_000, want: 14_500},
		"explicit, beyond": {
			given: 14_501, files: 20_000,
			wantErr: "--max-connections must be at most 14500, is 14501: this process may have 20000 files open",
		},
		"explicit, beyond few ones": {
			given: 513, files: 1024,
			wantErr: "of which 512 are for its stores",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := connectionLimit(tt.given, tt.files)
			if tt.wantErr == "" && err != nil {
				t.Fatal(err)
			}
			if tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("connectionLimit: got the error %v, want one with %q", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("connectionLimit: got %d, want %d", got, tt.want)
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

	// Open more connections than the process may have files.
	for range 500 {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}

	// The service must still write and answer.
	mustSkein(t, s, "skein", `{"userFollowed":{"userId":"ann","targetUserId":"bob"}}`+"\n", "publish", "--visible")
	if got := mustSkein(t, s, "skein", "", "query", "check", "ann", "bob"); !strings.Contains(got, "explicit") {
		t.Errorf("query check: got %q, want an explicit follow", got)
	}

	// The log says which limits apply.
	s.kill()
	text, err := s.readLogFile()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"open-files=400", "connections=200", fmt.Sprint("default-connections=", defaultConnections)} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not contain %q:\n%s", want, text)
		}
	}
}
