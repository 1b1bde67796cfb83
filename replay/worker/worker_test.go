package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/worker"
)

// TestMain also runs the worker: tests start this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" {
		if err := worker.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// settings are not the default ones, so that a worker that does not get them makes other rows.
func settings() all.Settings {
	s := all.Settings{Inbox: inbox.DefaultSettings()}
	s.Inbox.Threshold, s.Inbox.Keep = 5, 4
	return s
}

// command returns a Command that runs this test program as the worker.

func command() *worker.Command {
	return &worker.Command{Path: os.Args[0], Args: []string{os.Args[0], "work"}, Settings: settings()}
}

// beginBuild returns a build of a projection in a directory, for some partitions (nil for all), to which a log was added.
func beginBuild(
	t *testing.T, dir string, newProjection func() projections.Projection, held *events.Partitions, envs []*events.Envelope,
) *build.Handover {
	t.Helper()
	b, err := build.New(build.Options{
		FS: vfs.Default, Dir: dir + "/" + newProjection().Name() + "/000001", New: newProjection, Partitions: held,
		Memory: 1 << 20, Workers: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.Add(envs); err != nil {
		t.Fatal(err)
	}
	h, err := b.HandOver()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A worker makes the rows of a fold for every projection, for all partitions and for some. Its progress and its number of rows are right, too.
func TestWorkerMakesTheRowsOfAFold(t *testing.T) {
	envs := memlog.NewWorld(1, 150).Envelopes(600)
	everyone := events.AllPartitions()
	some := events.Partitions{0xff00ff00, 3}
	for n, newProjection := range slices.Repeat(all.Constructors(settings()), 2) {
		held := &everyone
		if n < len(all.Constructors(settings())) {
			held = &some
		}
		t.Run(fmt.Sprint(newProjection().Name(), " of ", held.Len()), func(t *testing.T) {
			dir := t.TempDir()
			h := beginBuild(t, dir, newProjection, held, envs)
			folded, written, want := replay.PhaseProgress{}, replay.PhaseProgress{}, int64(0)
			for _, part := range h.Parts {
				want += part.Events
			}
			rows, err := command().Finish(t.Context(), h, 0, func(at replay.PhaseProgress) error {
				if at.Phase == replay.Folding {
					folded = at
				} else {
					written = at
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if expected := (replay.PhaseProgress{Phase: replay.Folding, Unit: "events", Done: uint64(want)}); folded != expected {
				t.Errorf("got %+v, expected %+v", folded, expected)
			}
			if written.Done != written.Total {
				t.Errorf("got %+v, expected that all rows are written", written)
			}
			s, err := store.Open(store.Options{FS: vfs.Default, Dir: dir, Projection: newProjection(), Partitioned: true})
			if err != nil {
				t.Fatal(err)
			}
			got := conformance.RowsOf(t, s)
			conformance.Close(t, s)
			got.MustEqual(t, conformance.StraightOf(t, newProjection(), held, envs), "built by a worker")
			if rows != int64(len(got)) {
				t.Errorf("%d rows were reported, there are %d", rows, len(got))
			}
		})
	}
}

// A worker ends with the context, and when its report returns an error. The caller gets that error.
func TestWorkerEndsWithItsContextOrReport(t *testing.T) {
	h := beginBuild(t, t.TempDir(), all.Constructors(settings())[0], nil, memlog.NewWorld(1, 150).Envelopes(300))
	full := errors.New("the disk is full")
	if _, err := command().Finish(t.Context(), h, 0, func(replay.PhaseProgress) error { return full }); !errors.Is(err, full) {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := command().Finish(ctx, h, 0, func(replay.PhaseProgress) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Whatever a worker cannot do becomes the error of the build.

func TestFailureOfAWorkerFailsTheBuild(t *testing.T) {
	h := beginBuild(t, t.TempDir(), all.Constructors(settings())[0], nil, memlog.NewWorld(1, 20).Envelopes(30))
	nothing := func(replay.PhaseProgress) error { return nil }
	other := *h
	other.Version++
	if _, err := command().Finish(t.Context(), &other, 0, nothing); err == nil || !strings.Contains(err.Error(), "of version") {
		t.Errorf("another version: %v", err)
	}
	other = *h
	other.Dir += "elsewhere"
	if _, err := command().Finish(t.Context(), &other, 0, nothing); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("no files: %v", err)
	}
	missing := command()
	missing.Path += "-missing"
	if _, err := missing.Finish(t.Context(), h, 0, nothing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	killed := command()
	killed.Path, killed.Args = "/bin/sh", []string{"sh", "-c", "kill -9 $$"}
	if _, err := killed.Finish(t.Context(), h, 0, nothing); err == nil || !strings.Contains(err.Error(), "ended before") {
		t.Errorf("killed: %v", err)
	}
}
