package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPreparationSurvivesKills kills an upgrade with `skein replay prepare` at ten points: nine
// files that the command writes, where the service is killed with it, and the start that continues
// the prepared store. The next run must continue, and the service must answer as before.
func TestPreparationSurvivesKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	s := startServer(ctx, t)
	api := s.newClient()

	const plays = 3000
	for first := 0; first < plays; first += 500 {
		var evs []*skeinv1.Event
		for i := first; i < first+500; i++ {
			evs = append(evs, played(fmt.Sprint("u", i%700), fmt.Sprint("i", i%300)))
		}
		mustPublish(t, api, evs...)
	}

	data := s.dataDir()
	prepare := func() *exec.Cmd {
		return exec.CommandContext(ctx, "skein", "replay", "prepare", "counters", "--data", data, "--server", s.addr,
			"--heat-half-life", "12h", "--share", "1")
	}
	prepared := filepath.Join(data, "stores", "counters", "prepared", "counters")
	// The command is killed when count files match the pattern. It writes them in this order.
	points := []struct {
		files string
		count int
	}{
		{"000001.parts", 1},
		{"000001.parts/events", 1},
		{"000001.parts/store", 1},
		{"000001.parts/saved", 1},
		{"000001.parts/range-*", 1},
		{"000001.parts/range-*", 2},
		{"000001.parts/range-*", 8},
		{"000001", 1},
		{"000001.parts/built", 1},
	}
	if testing.Short() {
		points = points[5:7]
	}

	playCount := plays / 300 // of item i0
	for _, point := range points {
		for !killWhenFilesAppear(t, prepare(), filepath.Join(prepared, point.files), point.count) {
			// The command ended before the test saw the files. Remove what it has prepared, and try
			// again.
			if err := errors.Join(ctx.Err(), os.RemoveAll(filepath.Dir(prepared))); err != nil {
				t.Fatalf("%d %s: %v", point.count, point.files, err)
			}
		}

		s.kill()
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		mustPublish(t, api, played("ann", "i0"))
		playCount++
		checkOutput(t, s, "query counters --item i0 --json", fmt.Sprintf(`"playCount":"%d"`, playCount))
	}
	if out, err := prepare().CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// Kill the start that continues the prepared store as soon as the store is in its place.
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}

	s.flags = []string{"--heat-half-life", "12h"}
	if err := s.launch(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntil(ctx, t, func(context.Context) error {
		_, err := os.Stat(filepath.Join(data, "stores", "counters", "000002"))
		return err
	})

	s.kill()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}

	checkOutput(t, s, "replay status counters", "generation 2: ready")
	checkOutput(t, s, "replay verify", "equal")
	checkOutput(t, s, "query counters --item i0 --json", fmt.Sprintf(`"playCount":"%d"`, playCount))
}

// checkOutput checks that a command against a server succeeds and prints a text.
func checkOutput(t *testing.T, s *serverProcess, args, want string) {
	t.Helper()
	checkRunMatches(t, exitOK, regexp.QuoteMeta(want), append(strings.Fields(args), "--server", s.addr)...)
}

// killWhenFilesAppear runs a command, and kills it as soon as at least count files match a pattern,
// and at least one more than before. It reports whether the command was killed before it ended.
func killWhenFilesAppear(t *testing.T, cmd *exec.Cmd, pattern string, count int) (killed bool) {
	t.Helper()
	before, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	count = max(count, len(before)+1)

	cmd.Env = os.Environ()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the command failed before it was killed: %v", err)
			}
			return false
		case <-time.After(time.Millisecond):
		}
		if found, err := filepath.Glob(pattern); err != nil || len(found) >= count {
			_ = cmd.Process.Kill()
			t.Logf("the command was killed: %v", <-ended)
			return true
		}
	}
}
