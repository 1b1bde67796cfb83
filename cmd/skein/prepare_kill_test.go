package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPreparationSurvivesKills kills `skein replay prepare` at ten points of its progress, which
// are files that it writes. The next run must continue, and the service that is started with the
// prepared store must answer as before. The service that runs meanwhile must fail no call.
func TestPreparationSurvivesKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	s := &server{t: t, dir: t.TempDir()}
	t.Cleanup(func() { s.kill() })
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	api := (&command.ClientFlags{Server: s.addr}).Client()
	t.Cleanup(api.HTTP.CloseIdleConnections)
	const plays = 3000
	for first := 0; first < plays; first += 500 {
		var evs []*skeinv1.Event
		for i := first; i < first+500; i++ {
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
				UserId: fmt.Sprint("u", i%700), ItemId: fmt.Sprint("i", i%300),
			}}})
		}
		publish(t, api, evs...)
	}

	data := filepath.Join(s.dir, "data")
	prepare := func() *exec.Cmd {
		return exec.CommandContext(ctx, "skein", "replay", "prepare", "counters", "--data", data, "--server", s.addr,
			"--heat-half-life", "12h", "--share", "1")
	}
	prepared := filepath.Join(data, "stores", "counters", "prepared", "counters")
	killed := 0
	for _, point := range []struct {
		files string
		n     int
	}{
		{"000001.parts", 1},
		{"000001.parts/events", 1},
		{"000001.parts/store", 1},
		{"000001.parts/saved", 1},
		{"000001.parts/range-*", 1},
		{"000001.parts/range-*", 2},
		{"000001.parts/range-*", 4},
		{"000001.parts/range-*", 8},
		{"000001", 1},
		{"000001.parts/built", 1},
	} {
		if killAtFiles(t, prepare(), filepath.Join(prepared, point.files), point.n) {
			killed++
		}
		publish(t, api, &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "ann", ItemId: "i0"}}})
	}
	t.Logf("%d of 10 runs were killed before they ended", killed)
	if out, err := prepare().CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if err := s.stopInOrder(); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--heat-half-life", "12h"}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"replay status counters", "generation 2: ready"},
		{"replay verify counters", "equal"},
		{"query counters --item i0 --json", `"playCount":"20"`},
	} {
		code, out, said := skein(append(strings.Fields(c.args), "--server", s.addr)...)
		if code != exitOK || !strings.Contains(out+said, c.want) {
			t.Errorf("skein %s: exit code %d, %s%s, expected %q", c.args, code, out, said, c.want)
		}
	}
}

// killAtFiles runs a command, and kills it as soon as there are n files that match a pattern. It reports whether the command was killed before it
// ended.
func killAtFiles(t *testing.T, cmd *exec.Cmd, pattern string, n int) (killed bool) {
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
		if found, err := filepath.Glob(pattern); err != nil || len(found) >= n {
			_ = cmd.Process.Kill()
			t.Logf("the command was killed: %v", <-ended)
			return true
		}
	}
}
