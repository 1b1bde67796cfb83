package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPreparationSurvivesKills kills an upgrade with `skein replay prepare` at eleven points: when
// the command has written some files, and twice while it reads the log, where the service is killed
// with it, and at the start that continues the prepared store. The next run must continue, and the
// service must answer as before.
func TestPreparationSurvivesKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	s := startServer(ctx, t)
	api := s.newClient()

	const (
		plays = 3000
		items = 300
		pins  = 6000
	)
	publishPlaysAndPins(t, api, plays, items, pins)

	data := s.dataDir()
	prepare := func(share string) *exec.Cmd {
		return exec.CommandContext(ctx, "skein", "replay", "prepare", "counters", "--data", data, "--server", s.addr,
			"--heat-half-life", "12h", "--share", share)
	}
	prepared := filepath.Join(data, "stores", "counters", "prepared", "counters")

	// The command is killed when count files match the pattern. It writes them in this order. For
	// the pattern savedFile, it is killed while it reads the log, when it has saved a further part.
	const savedFile = "000001.parts/saved"
	points := []struct {
		pattern string
		count   int
	}{
		{"000001.parts", 1},
		{"000001.parts/events", 1},
		{savedFile, 1},
		{savedFile, 1},
		{"000001.parts/store", 1},
		{"000001.parts/range-*", 1},
		{"000001.parts/range-*", 2},
		{"000001.parts/range-*", 8},
		{"000001", 1},
		{"000001.parts/built", 1},
	}
	if testing.Short() {
		points = append(points[2:4:4], points[6:8]...)
	}

	playCount := plays / items // of item i0
	for _, point := range points {
		kill := func() (killed bool) {
			if point.pattern == savedFile {
				// With a small share, the command reads slowly enough to be killed meanwhile.
				return killWhileLogIsRead(t, prepare("0.05"), filepath.Join(prepared, savedFile))
			}
			return killWhenFilesAppear(t, prepare("1"), filepath.Join(prepared, point.pattern), point.count)
		}
		for !kill() {
			// The command ended before the test saw the files. Remove what it has prepared, and try
			// again.
			if err := errors.Join(ctx.Err(), os.RemoveAll(filepath.Dir(prepared))); err != nil {
				t.Fatalf("%d %s: %v", point.count, point.pattern, err)
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
	if out, err := prepare("1").CombinedOutput(); err != nil {
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

// publishPlaysAndPins publishes the history of a preparation. The plays are spread evenly among
// items. The pins are so large that the log is read in several parts, of which each is saved.
func publishPlaysAndPins(t *testing.T, api *command.Client, plays, items, pins int) {
	t.Helper()
	var evs []*skeinv1.Event
	for i := range plays {
		evs = append(evs, played(fmt.Sprint("u", i%700), fmt.Sprint("i", i%items)))
	}
	for i := range pins {
		id := fmt.Sprintf("%0*d", events.MaxIDBytes, i)
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: id, PinId: id}, BoardId: id, ItemId: id,
			Attributes: make([]byte, events.MaxAttributesBytes),
		}}})
	}
	for chunk := range slices.Chunk(evs, 500) {
		mustPublish(t, api, chunk...)
	}
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
	return killWhen(t, cmd, func() bool {
		found, err := filepath.Glob(pattern)
		return err != nil || len(found) >= count
	})
}

// killWhileLogIsRead runs a command that prepares a generation, and kills it as soon as it has
// saved another part of the log than before. path is the file that says what is saved. It checks
// that more of the log is saved after the kill than before the command. It reports whether the
// command was killed before it had read the whole log.
func killWhileLogIsRead(t *testing.T, cmd *exec.Cmd, path string) (killed bool) {
	t.Helper()
	type savedBuild struct {
		EventBytes int64
		Ranges     [][2]int // set when the whole log is read
	}
	readSaved := func() (saved savedBuild) {
		t.Helper()
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return saved // the command has not saved anything yet
		}
		if err != nil {
			t.Fatal(err)
		}

		// A header of one line is before the JSON. The command replaces the file as a whole, so it
		// can be read at any time.
		_, content, _ := bytes.Cut(data, []byte("\n"))
		if err := json.Unmarshal(content, &saved); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return saved
	}

	before := readSaved()
	killed = killWhen(t, cmd, func() bool {
		saved := readSaved()
		return saved.EventBytes > 0 && saved.EventBytes != before.EventBytes
	})
	after := readSaved()
	if !killed || after.Ranges != nil {
		return false
	}
	if after.EventBytes <= before.EventBytes {
		t.Errorf("%d bytes of events are saved after the kill, want more than the %d of before", after.EventBytes, before.EventBytes)
	}
	return true
}

// killWhen runs a command, and kills it as soon as reached returns true. It reports whether the
// command was killed before it ended.
func killWhen(t *testing.T, cmd *exec.Cmd, reached func() bool) (killed bool) {
	t.Helper()
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
		if reached() {
			_ = cmd.Process.Kill()
			t.Logf("the command was killed: %v", <-ended)
			return true
		}
	}
}
