package live_test

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// openLive opens a Live of a tally, in memory unless the options have a file system. It is closed
// at the end of the test.
func openLive(t testing.TB, o live.Options) *live.Live {
	t.Helper()
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	if o.New == nil {
		o.New = newTally
	}
	o.Dir = "data"
	l, err := live.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLive(t, l) })
	return l
}

func closeLive(t testing.TB, l *live.Live) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// liveOptions returns options with a file system.
func liveOptions(fs store.FS) live.Options {
	return live.Options{Options: store.Options{FS: fs}}
}

// runLive calls Run, whose context ends when the returned function is called.
func runLive(t testing.TB, l *live.Live, subscribe store.SubscribeFunc) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx, subscribe)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// buildNext builds the next generation from envelopes.
func buildNext(t testing.TB, l *live.Live, envs []*events.Envelope) *store.Store {
	t.Helper()
	next, err := l.BuildNext(t.Context(), func(dir string) error {
		b, err := build.New(build.Options{FS: l.FS(), Dir: dir, New: l.New})
		if err != nil {
			return err
		}
		return errors.Join(b.Add(envs), b.Finish(t.Context()), b.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func cutOver(t testing.TB, l *live.Live, next *store.Store) {
	t.Helper()
	if _, err := l.CutOver(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}

// listDirectories returns the names in the directory of the generations of the tally, sorted.
func listDirectories(fs store.FS) string {
	names, _ := fs.List("data/tally")
	for i := range names {
		names[i] = path.Base(names[i])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// checkGenerations checks which generations are live and previous.
func checkGenerations(t testing.TB, l *live.Live, generation, previous uint32) {
	t.Helper()
	if st := l.Status(); st.Generation != generation || st.Previous != previous {
		t.Errorf("got generation %d, previous %d, want %d, %d", st.Generation, st.Previous, generation, previous)
	}
}

// TestCutOverAndRollback builds a second and a third generation, rolls back to the second, and
// restarts in between.
func TestCutOverAndRollback(t *testing.T) {
	envs := tally.History(3, 200)
	fs := vfs.NewMem()
	l := openLive(t, liveOptions(fs))
	if err := l.Serving().Fold(envs[:100]); err != nil {
		t.Fatal(err)
	}
	checkGenerations(t, l, 1, 0)

	// While the next generation is open or behind, generation 1 stays live.
	next := buildNext(t, l, envs[:99])
	checkGenerations(t, l, 1, 0)
	if _, err := l.BuildNext(t.Context(), nil); !errors.Is(err, live.ErrBuilding) {
		t.Errorf("second build: got error %v, want %v", err, live.ErrBuilding)
	}
	if _, err := l.CutOver(t.Context(), next); !errors.Is(err, live.ErrBehind) {
		t.Errorf("cut over to a generation that is behind: got error %v, want %v", err, live.ErrBehind)
	}
	checkGenerations(t, l, 1, 0)

	// A generation that is ahead of the live one replaces it.
	next = buildNext(t, l, envs[:150])
	cutOver(t, l, next)
	checkGenerations(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs[:150]), "the second generation")
	if _, err := l.CutOver(t.Context(), next); err == nil {
		t.Error("second cut-over to the same generation: got no error, want one")
	}

	// The third generation replaces the second, and the first is removed.
	cutOver(t, l, buildNext(t, l, envs[:150]))
	checkGenerations(t, l, 3, 2)
	closeLive(t, l)
	if got := listDirectories(fs); got != "000002 000003 GENERATIONS" {
		t.Errorf("got the directories %s, want generations 2 and 3", got)
	}
	l = openLive(t, liveOptions(fs))
	checkGenerations(t, l, 3, 2)

	// Roll back to the second generation.
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, previous, envs)
	cutOver(t, l, previous)
	checkGenerations(t, l, 2, 3)

	// A next generation that is closed again changes nothing.
	next = buildNext(t, l, envs)
	checkGenerations(t, l, 2, 3)
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}
	checkGenerations(t, l, 2, 3)
	closeLive(t, l)
	if got := listDirectories(fs); got != "000002 000003 GENERATIONS" {
		t.Errorf("got the directories %s, want generations 2 and 3", got)
	}

	// A tool that opens the store opens the live generation.
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "after the rollback")
}

// TestRestartRemovesUnfinishedBuild checks that a restart removes the generation that was being
// built, whether the program has the same fold or another one.
func TestRestartRemovesUnfinishedBuild(t *testing.T) {
	envs := tally.History(4, 100)
	fs := vfs.NewMem()
	l := openLive(t, liveOptions(fs))
	conformance.Fold(t, l.Serving(), envs)

	// Close the Live while generation 2 is being built.
	next := buildNext(t, l, envs[:60])
	if got := listDirectories(fs); got != "000001 000002 GENERATIONS" {
		t.Errorf("got the directories %s, want generations 1 and 2", got)
	}
	closeLive(t, l)
	if err := next.Fold(envs); !errors.Is(err, projections.ErrClosed) {
		t.Errorf("fold after Close: got error %v, want %v", err, projections.ErrClosed)
	}

	// After a restart of a program with another fold, only generation 1 is left.
	o := liveOptions(fs)
	o.New = func() projections.Projection {
		return tally.Variant{Tally: tally.New(), FoldVersion: 2, ReadKinds: tally.New().Kinds()}
	}
	l = openLive(t, o)
	checkGenerations(t, l, 1, 0)
	if got := listDirectories(fs); got != "000001 GENERATIONS" {
		t.Errorf("got the directories %s, want generation 1 only", got)
	}

	cutOver(t, l, buildNext(t, l, envs))
	checkGenerations(t, l, 2, 1)
	if _, err := l.OpenPrevious(t.Context()); !errors.Is(err, projections.ErrFingerprint) {
		t.Errorf("open a previous generation of another fold: got error %v, want %v", err, projections.ErrFingerprint)
	}
}

// TestFailedBuildLeavesNothing checks that a build that fails leaves no files, and that another
// build can begin.
func TestFailedBuildLeavesNothing(t *testing.T) {
	fs := vfs.NewMem()
	l := openLive(t, liveOptions(fs))
	conformance.Fold(t, l.Serving(), tally.History(4, 100))

	// The build makes a directory and then fails.
	fault := errors.New("no build today")
	_, err := l.BuildNext(t.Context(), func(dir string) error {
		if _, err := l.BuildNext(t.Context(), nil); !errors.Is(err, live.ErrBuilding) {
			t.Errorf("second build: got error %v, want %v", err, live.ErrBuilding)
		}
		return errors.Join(fs.MkdirAll(dir+"/below", 0o755), fault)
	})

	if !errors.Is(err, fault) {
		t.Errorf("failed build: got error %v, want %v", err, fault)
	}
	if got := listDirectories(fs); got != "000001 GENERATIONS" {
		t.Errorf("got the directories %s, want generation 1 only", got)
	}

	cutOver(t, l, buildNext(t, l, tally.History(4, 100)))
	checkGenerations(t, l, 2, 1)
}

// TestPanickingBuildDoesNotBlockNextOne checks that after a build that panics another one can begin.
// An operation recovers the panic and fails.
func TestPanickingBuildDoesNotBlockNextOne(t *testing.T) {
	envs := tally.History(3, 50)
	l := openLive(t, live.Options{})

	func() {
		defer func() {
			if p := recover(); p != "broken fold" {
				t.Errorf("got panic %v, want that of the build", p)
			}
		}()
		_, err := l.BuildNext(t.Context(), func(string) error { panic("broken fold") })
		t.Errorf("BuildNext has returned error %v, want a panic", err)
	}()

	next := buildNext(t, l, envs)
	cutOver(t, l, next)
	checkGenerations(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "the second build")
}

// TestOutdatedStoreAnswersFromItsLastPosition checks that a generation with other settings answers
// from its last position, and that one of another version answers nothing unless the projection
// says that it can read the rows.
func TestOutdatedStoreAnswersFromItsLastPosition(t *testing.T) {
	envs := tally.History(4, 100)
	kinds := tally.New().Kinds()
	for name, test := range map[string]struct {
		now     func() projections.Projection
		answers bool
	}{
		"settings": {func() projections.Projection {
			return tally.Variant{Tally: tally.New(), FoldVersion: 1, ReadKinds: kinds, FoldSettings: map[string]string{"copies": "9"}}
		}, true},
		"version": {func() projections.Projection {
			return tally.Variant{Tally: tally.New(), FoldVersion: 2, ReadKinds: kinds, FoldSettings: tally.New().Settings()}
		}, false},
		"a version that can be read": {func() projections.Projection {
			return readsVersion1{tally.Variant{Tally: tally.New(), FoldVersion: 2, ReadKinds: kinds[1:], FoldSettings: tally.New().Settings()}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLive(t, liveOptions(fs))
			conformance.Fold(t, l.Serving(), envs[:50])
			closeLive(t, l)

			// Reopen the store with the other fold, and record its states.
			states, ready := recordStates()
			o := liveOptions(fs)
			o.New = test.now
			o.Listener.StateChanged = states.Add
			l = openLive(t, o)
			log := storetest.NewLog(envs...)
			runLive(t, l, log.Subscribe)

			// The store is outdated, and its status says whether it answers.
			st := l.Status()
			if st.State != store.Outdated || states.String() != "outdated" {
				t.Errorf("after the start: got status %+v and states %s, want state outdated", st, states)
			}
			if !errors.Is(st.Error, projections.ErrFingerprint) {
				t.Errorf("after the start: got error %v, want %v", st.Error, projections.ErrFingerprint)
			}
			if st.Unreadable == test.answers || st.Answers() != test.answers {
				t.Errorf("after the start: got Unreadable %v and Answers %v, want %v and %v",
					st.Unreadable, st.Answers(), !test.answers, test.answers)
			}

			// A store that answers does so from the last position that it folded.
			v, err := l.View()
			if test.answers != (err == nil) || err != nil && !errors.Is(err, live.ErrOutdated) {
				t.Errorf("view: got error %v, want answers: %v", err, test.answers)
			}
			if err == nil {
				if v.Cursor() != envs[49].Cursor {
					t.Errorf("got a view at %+v, want %+v", v.Cursor(), envs[49].Cursor)
				}
				if l.Cursor() != envs[49].Cursor {
					t.Errorf("got Cursor %+v, want %+v", l.Cursor(), envs[49].Cursor)
				}
				_ = v.Close()
				if err := l.WaitFor(t.Context(), envs[49].Seq()); err != nil {
					t.Errorf("wait for the last position: got error %v, want none", err)
				}
			}
			if err := l.WaitFor(t.Context(), envs[50].Seq()); !errors.Is(err, live.ErrOutdated) {
				t.Errorf("wait for a later position: got error %v, want %v", err, live.ErrOutdated)
			}

			// A new generation replaces the outdated store, and Run folds the rest of the log.
			cutOver(t, l, buildNext(t, l, envs[:60]))
			if err := l.WaitFor(t.Context(), envs[99].Seq()); err != nil {
				t.Fatal(err)
			}
			<-ready
			if st := l.Status(); st.State != store.Ready || st.Error != nil || st.Generation != 2 {
				t.Errorf("after the cut-over: got status %+v, want generation 2 ready without an error", st)
			}
			if !strings.HasPrefix(states.String(), "outdated ") || !strings.HasSuffix(states.String(), " ready") {
				t.Errorf("got states %s, want outdated first and ready last", states)
			}
		})
	}
}

// recordStates returns a recorder of states, and a channel that is closed at the first Ready.
func recordStates() (*recordedStates, <-chan struct{}) {
	ready := make(chan struct{})
	return &recordedStates{ready: sync.OnceFunc(func() { close(ready) })}, ready
}

// recordedStates records states, and calls ready at each Ready.
type recordedStates struct {
	storetest.States
	ready func()
}

func (h *recordedStates) Add(s store.State, err error) {
	h.States.Add(s, err)
	if s == store.Ready {
		h.ready()
	}
}

// readsVersion1 is a projection that can read the rows of version 1.
type readsVersion1 struct{ tally.Variant }

func (readsVersion1) CanRead(was projections.Fingerprint) bool { return was.Version == 1 }

// TestDamagedStoreIsReportedAndRebuilt checks that a store that cannot be opened is reported and
// can be rebuilt, and does not end the process.
func TestDamagedStoreIsReportedAndRebuilt(t *testing.T) {
	envs := tally.History(4, 100)
	for name, damage := range map[string]func(t *testing.T, fs *vfs.MemFS){
		"no manifest": func(t *testing.T, fs *vfs.MemFS) { removeFiles(t, fs, "MANIFEST", "marker.manifest") },
		"no tables":   func(t *testing.T, fs *vfs.MemFS) { removeFiles(t, fs, ".sst") },
		"damaged manifest": func(t *testing.T, fs *vfs.MemFS) {
			overwriteFiles(t, fs, "MANIFEST")
		},
		"damaged GENERATIONS": func(t *testing.T, fs *vfs.MemFS) { overwriteFiles(t, fs, "GENERATIONS") },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLive(t, liveOptions(fs))
			cutOver(t, l, buildNext(t, l, envs[:50]))
			closeLive(t, l)
			damage(t, fs)

			// Start again on the damaged files.
			states, ready := recordStates()
			o := liveOptions(fs)
			o.Listener.StateChanged = states.Add
			l = openLive(t, o)
			log := storetest.NewLog(envs...)
			runLive(t, l, log.Subscribe)
			if st := l.Status(); st.State != store.Failed || st.Error == nil || st.Answers() {
				t.Errorf("after the damage: got status %+v, want state failed with an error, without answers", st)
			}
			if states.String() != "failed" {
				t.Errorf("after the damage: got states %s, want failed", states)
			}
			if _, err := l.View(); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("view: got error %v, want %v", err, projections.ErrStopped)
			}
			if err := l.WaitFor(t.Context(), 0); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("wait: got error %v, want %v", err, projections.ErrStopped)
			}

			// A rebuild replaces the damaged generation, and Run folds the rest of the log.
			cutOver(t, l, buildNext(t, l, envs[:70]))
			if err := l.WaitFor(t.Context(), envs[99].Seq()); err != nil {
				t.Fatal(err)
			}
			<-ready
			if st := l.Status(); st.State != store.Ready || st.Generation != 3 {
				t.Errorf("after the rebuild: got status %+v, want generation 3 ready", st)
			}
			if !strings.HasPrefix(states.String(), "failed ") || !strings.HasSuffix(states.String(), " ready") {
				t.Errorf("got states %s, want failed first and ready last", states)
			}
			conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "rebuilt")

			closeLive(t, l)
			l = openLive(t, liveOptions(fs))
			if st := l.Status(); st.Generation != 3 || st.Error != nil {
				t.Errorf("got status %+v after a restart, want generation 3 without an error", st)
			}
		})
	}
}

// findFiles returns the files of generation 2, and the file of generations, if their name contains
// one of the parts.
func findFiles(fs *vfs.MemFS, parts ...string) (found []string) {
	for _, dir := range []string{"data/tally", "data/tally/000002"} {
		names, _ := fs.List(dir)
		for _, name := range names {
			if slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) }) {
				found = append(found, dir+"/"+path.Base(name))
			}
		}
	}
	return found
}

// removeFiles removes the files that findFiles returns.
func removeFiles(t *testing.T, fs *vfs.MemFS, parts ...string) {
	t.Helper()
	found := findFiles(fs, parts...)
	for _, name := range found {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		t.Fatalf("found no file whose name contains one of %q, want at least one", parts)
	}
}

// overwriteFiles replaces the content of the files that findFiles returns, except markers, which
// have none.
func overwriteFiles(t *testing.T, fs *vfs.MemFS, part string) {
	t.Helper()
	overwritten := 0
	for _, name := range findFiles(fs, part) {
		if strings.Contains(name, "marker") {
			continue
		}

		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("this is the content of no such file")); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		overwritten++
	}
	if overwritten == 0 {
		t.Fatalf("found no file whose name contains %q, want at least one", part)
	}
}

// TestFailedProjectionIsRebuiltWhileRunning checks that a projection that fails while it runs can
// be rebuilt in the running process.
func TestFailedProjectionIsRebuiltWhileRunning(t *testing.T) {
	envs := storetest.Follows(20)
	var made atomic.Int32
	o := live.Options{New: func() projections.Projection {
		p := tally.New()
		// Open calls New once only for the projection's name. The second projection folds.
		if made.Add(1) == 2 {
			p.FailAt = 10
		}
		return p
	}}
	l := openLive(t, o)
	log := storetest.NewLog(envs...)
	log.Most = 1

	stop := runLive(t, l, log.Subscribe)
	if err := l.WaitFor(t.Context(), 20); !errors.Is(err, tally.ErrFails) {
		t.Fatalf("wait: got error %v, want %v", err, tally.ErrFails)
	}
	if _, err := l.View(); !errors.Is(err, tally.ErrFails) {
		t.Errorf("view: got error %v, want %v", err, tally.ErrFails)
	}
	if st := l.Status(); st.State != store.Failed || !st.Damaged {
		t.Errorf("after the fold met an impossible row: got status %+v, want state failed and Damaged true", st)
	}

	cutOver(t, l, buildNext(t, l, nil))
	if err := l.WaitFor(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	stop()
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "rebuilt")
}

// TestViewsOutliveCutOver checks that views of the old generation can still be read, and that the
// next rebuild waits until they are closed.
func TestViewsOutliveCutOver(t *testing.T) {
	envs := tally.History(3, 60)
	l := openLive(t, live.Options{})
	conformance.Fold(t, l.Serving(), envs[:50])

	v, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, buildNext(t, l, envs))

	// The view still has the rows and the position of the old generation.
	want := foldStraight(t, envs[:50]).String()
	if got := formatRows(v); got != want {
		t.Errorf("rows of the view after the cut-over: got\n%s\nwant\n%s", got, want)
	}
	if v.Cursor() != envs[49].Cursor {
		t.Errorf("position of the view after the cut-over: got %+v, want %+v", v.Cursor(), envs[49].Cursor)
	}

	// OpenPrevious waits until the view is closed.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.OpenPrevious(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("open the previous generation while it is read: got error %v, want %v", err, context.Canceled)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if previous.Cursor() != envs[49].Cursor {
		t.Errorf("position of the previous generation: got %+v, want %+v", previous.Cursor(), envs[49].Cursor)
	}
}

// formatRows returns the rows of a view as text, or the error of reading them.
func formatRows(v *projections.View) string {
	var rows conformance.Rows
	it := v.Iter(nil, nil)
	for it.Next() {
		rows = append(rows, conformance.Row{Key: bytes.Clone(it.Key()), Value: bytes.Clone(it.Value())})
	}
	if err := it.Close(); err != nil {
		return err.Error()
	}
	return rows.String()
}

// TestWaitersOutliveCutOver checks that a caller that waits for a position gets it from the
// generation that reaches it.
func TestWaitersOutliveCutOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := storetest.Follows(60)
		l := openLive(t, live.Options{})
		conformance.Fold(t, l.Serving(), envs[:50])
		waited := make(chan error)
		go func() { waited <- l.WaitFor(t.Context(), 60) }()
		synctest.Wait()
		cutOver(t, l, buildNext(t, l, envs[:55]))
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("WaitFor returned %v at the cut-over, before the position was visible", err)
		default:
		}
		conformance.Fold(t, l.Serving(), envs)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// TestCallsOnNextGeneration checks what each call does to the next generation, and which calls each
// state refuses.
func TestCallsOnNextGeneration(t *testing.T) {
	envs := storetest.Follows(20)
	fails := false
	l := openLive(t, live.Options{New: func() projections.Projection {
		p := tally.New()
		if fails {
			p.FailAt = 10
		}
		return p
	}})
	conformance.Fold(t, l.Serving(), envs)

	next := buildNext(t, l, envs[:5])
	if err := l.DeletePrevious(t.Context()); !errors.Is(err, live.ErrBuilding) {
		t.Errorf("DeletePrevious while a next generation is open: got error %v, want %v", err, live.ErrBuilding)
	}
	if err := l.CloseNext(l.Serving()); err == nil {
		t.Error("CloseNext of the live generation: got no error, want one")
	}
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}
	checkGenerations(t, l, 1, 0)
	if _, err := l.CutOver(t.Context(), next); err == nil {
		t.Error("CutOver to a closed generation: got no error, want one")
	}

	fails = true
	next = buildNext(t, l, envs[:5])
	if next.Fold(envs[5:]) == nil {
		t.Fatal("fold at FailAt: got no error, want one")
	}
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}

	fails = false
	cutOver(t, l, buildNext(t, l, envs))
	checkGenerations(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "built after a failed one")
}

// blockedSubscription is a subscription whose Next blocks until its context has ended and release
// is closed.
type blockedSubscription struct{ release chan struct{} }

func (s blockedSubscription) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	<-s.release
	<-ctx.Done()
	return nil, ctx.Err()
}

func (blockedSubscription) Head() uint64 { return 1 }
func (blockedSubscription) Close()       {}

// TestRunIsRefusedUntilTheLastOneHasReturned checks that Run fails while the folds of a Run whose
// context has ended are still ending. Otherwise two folds would work on one store.
func TestRunIsRefusedUntilTheLastOneHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLive(t, liveOptions(vfs.NewMem()))
		blocked := blockedSubscription{make(chan struct{})}
		run := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- l.Run(ctx, func(events.Cursor) (store.Subscription, error) { return blocked, nil })
			}()
			synctest.Wait()
			return ended
		}

		ctx, cancel := context.WithCancel(t.Context())
		first := run(ctx)
		cancel()
		synctest.Wait()

		ctx, cancel = context.WithCancel(t.Context())
		second := run(ctx)
		select {
		case err := <-second:
			if err == nil {
				t.Error("Run while the folds of another one are ending: got no error, want one")
			}
		default:
			t.Error("Run while the folds of another one are ending: it runs, want that it fails")
		}

		// When the folds have ended, Run is possible.
		close(blocked.release)
		cancel()
		if err := <-first; err != nil {
			t.Errorf("the first Run: got error %v, want none", err)
		}
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		third := run(ctx)
		select {
		case err := <-third:
			t.Errorf("Run after another one has returned: got error %v, want that it runs", err)
		default:
		}
		cancel()
		if err := <-third; err != nil {
			t.Errorf("the last Run: got error %v, want none", err)
		}
	})
}
