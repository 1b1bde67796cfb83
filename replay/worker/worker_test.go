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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
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
	testmain.Run(m)
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

// beginBuild returns a build of a projection in a directory, for some partitions (nil for all), to
// which a log was added.
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
			t.Errorf("close the build: got %v, expected no error", err)
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

// A worker makes the rows of a fold for every projection, for all partitions and for some. Its
// progress and its number of rows are right, too.
func TestWorkerMakesTheRowsOfAFold(t *testing.T) {
	envs := memlog.NewWorld(1, 150).Envelopes(600)
	allPartitions := events.AllPartitions()
	somePartitions := events.Partitions{0xff00ff00, 3}
	for n, newProjection := range slices.Repeat(all.Constructors(settings()), 2) {
		held := &allPartitions
		if n < len(all.Constructors(settings())) {
			held = &somePartitions
		}
		t.Run(fmt.Sprint(newProjection().Name(), " of ", held.Len()), func(t *testing.T) {
			dir := t.TempDir()
			h := beginBuild(t, dir, newProjection, held, envs)
			wantEvents := int64(0)
			for _, part := range h.Parts {
				wantEvents += part.Events
			}

			var folded, written replay.PhaseProgress
			rows, err := command().Finish(t.Context(), h, 0, func(progress replay.PhaseProgress) error {
				if progress.Phase == replay.Folding {
					folded = progress
				} else {
					written = progress
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}

			wantFolded := replay.PhaseProgress{Phase: replay.Folding, Unit: "events", Done: uint64(wantEvents)}
			if folded != wantFolded {
				t.Errorf("folding: got %+v, expected %+v", folded, wantFolded)
			}
			if written.Done != written.Total {
				t.Errorf("writing: got %+v, expected that all rows are written", written)
			}

			s, err := store.Open(store.Options{FS: vfs.Default, Dir: dir, Projection: newProjection(), Partitioned: true})
			if err != nil {
				t.Fatal(err)
			}
			got := conformance.RowsOf(t, s)
			conformance.Close(t, s)
			got.MustEqual(t, conformance.StraightOf(t, newProjection(), held, envs), "built by a worker")
			if rows != int64(len(got)) {
				t.Errorf("got %d as the number of rows, expected %d", rows, len(got))
			}
		})
	}
}

// A worker ends with the context, and when its report returns an error. The caller gets that error.
func TestWorkerEndsWithItsContextOrReport(t *testing.T) {
	h := beginBuild(t, t.TempDir(), all.Constructors(settings())[0], nil, memlog.NewWorld(1, 150).Envelopes(300))
	t.Run("report fails", func(t *testing.T) {
		full := errors.New("the disk is full")
		_, err := command().Finish(t.Context(), h, 0, func(replay.PhaseProgress) error { return full })
		if !errors.Is(err, full) {
			t.Errorf("got %v, expected %v", err, full)
		}
	})

	t.Run("context ends", func(t *testing.T) {
		// With such a small share, the worker rests for very long after the first partition.
		// Otherwise it might finish the build before it is killed.
		const share = 1e-8
		ctx, cancel := context.WithCancel(t.Context())
		_, err := command().Finish(ctx, h, share, func(replay.PhaseProgress) error {
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, expected %v", err, context.Canceled)
		}
	})
}

// Whatever a worker cannot do becomes the error of the build.
func TestFailureOfAWorkerFailsTheBuild(t *testing.T) {
	h := beginBuild(t, t.TempDir(), all.Constructors(settings())[0], nil, memlog.NewWorld(1, 20).Envelopes(30))
	ignoreProgress := func(replay.PhaseProgress) error { return nil }

	otherVersion := *h
	otherVersion.Version++
	otherDir := *h
	otherDir.Dir += "elsewhere"
	missing := command()
	missing.Path += "-missing"
	killed := command()
	killed.Path = "/bin/sh"
	killed.Args = []string{"sh", "-c", "kill -9 $$"}

	for _, tc := range []struct {
		name     string
		command  *worker.Command
		build    *build.Handover
		wantErr  error  // nil means any
		wantText string // in the error
	}{
		{name: "another version", command: command(), build: &otherVersion, wantText: "of version"},
		{name: "no files", command: command(), build: &otherDir, wantText: "elsewhere"},
		{name: "no program", command: missing, build: h, wantErr: os.ErrNotExist},
		{name: "killed", command: killed, build: h, wantText: "ended before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.command.Finish(t.Context(), tc.build, 0, ignoreProgress)
			if err == nil || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("got the error %v, expected one with %q", err, tc.wantText)
			}
			if tc.wantErr != nil && !errors.Is(err, tc.wantErr) {
				t.Errorf("got the error %v, expected %v", err, tc.wantErr)
			}
		})
	}
}
