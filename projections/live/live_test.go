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

// openLive opens a tally that serves, to be closed with the test.
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

func liveOn(fs store.FS) live.Options {
	return live.Options{Options: store.Options{FS: fs}}
}

// runLive runs it until the returned function is called.
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

// buildNext builds the next generation.
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

// directories are those of the tally.
func directories(fs store.FS) string {
	names, _ := fs.List("data/tally")
	for i := range names {
		names[i] = path.Base(names[i])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func wantStatus(t testing.TB, l *live.Live, generation, previous uint32) {
	t.Helper()
	if st := l.Status(); st.Generation != generation || st.Previous != previous {
		t.Errorf("generation %d, previous %d, want %d, %d", st.Generation, st.Previous, generation, previous)
	}
}

// TestCutOverAndRollback builds a second and a third generation, rolls back to the second, and restarts in between.
func TestCutOverAndRollback(t *testing.T) {
	envs := tally.History(3, 200)
	fs := vfs.NewMem()
	l := openLive(t, liveOn(fs))
	if err := l.Serving().Fold(envs[:100]); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, l, 1, 0)
	next := buildNext(t, l, envs[:99])
	wantStatus(t, l, 1, 0)
	if _, err := l.BuildNext(t.Context(), nil); !errors.Is(err, live.ErrBuilding) {
		t.Errorf("a second build: %v", err)
	}
	if _, err := l.CutOver(t.Context(), next); !errors.Is(err, live.ErrBehind) {
		t.Errorf("cut over to what is behind: %v", err)
	}
	wantStatus(t, l, 1, 0)
	next = buildNext(t, l, envs[:150])
	cutOver(t, l, next)
	wantStatus(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, straight(t, envs[:150]), "the second")
	if _, err := l.CutOver(t.Context(), next); err == nil {
		t.Error("cut over twice")
	}

	cutOver(t, l, buildNext(t, l, envs[:150]))
	wantStatus(t, l, 3, 2)
	closeLive(t, l)
	if got := directories(fs); got != "000002 000003 GENERATIONS" {
		t.Errorf("left are %s", got)
	}
	l = openLive(t, liveOn(fs))
	wantStatus(t, l, 3, 2)

	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, previous, envs)
	cutOver(t, l, previous)
	wantStatus(t, l, 2, 3)
	next = buildNext(t, l, envs)
	wantStatus(t, l, 2, 3)
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, l, 2, 3)
	closeLive(t, l)
	if got := directories(fs); got != "000002 000003 GENERATIONS" {
		t.Errorf("left are %s", got)
	}
	// A tool that opens the store finds the one that is live.
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.RowsOf(t, s).MustEqual(t, straight(t, envs), "gone back to")
}

// TestRestartRemovesUnfinishedBuild checks that a restart removes the generation that was being built, whether the program has the same fold or
// another one.
func TestRestartRemovesUnfinishedBuild(t *testing.T) {
	envs := tally.History(4, 100)
	fs := vfs.NewMem()
	l := openLive(t, liveOn(fs))
	conformance.Fold(t, l.Serving(), envs)
	next := buildNext(t, l, envs[:60])
	if got := directories(fs); got != "000001 000002 GENERATIONS" {
		t.Errorf("there are %s", got)
	}
	closeLive(t, l)
	if err := next.Fold(envs); !errors.Is(err, projections.ErrClosed) {
		t.Errorf("folded after Close: %v", err)
	}
	o := liveOn(fs)
	o.New = func() projections.Projection {
		return tally.Variant{Tally: tally.New(), FoldVersion: 2, ReadKinds: tally.New().Kinds()}
	}
	l = openLive(t, o)
	wantStatus(t, l, 1, 0)
	if got := directories(fs); got != "000001 GENERATIONS" {
		t.Errorf("left are %s", got)
	}
	cutOver(t, l, buildNext(t, l, envs))
	wantStatus(t, l, 2, 1)
	if _, err := l.OpenPrevious(t.Context()); !errors.Is(err, projections.ErrFingerprint) {
		t.Errorf("gone back to another fold: %v", err)
	}
}

// TestFailedBuildLeavesNothing checks that a build that fails leaves no files, and that another build can begin.
func TestFailedBuildLeavesNothing(t *testing.T) {
	fs := vfs.NewMem()
	l := openLive(t, liveOn(fs))
	conformance.Fold(t, l.Serving(), tally.History(4, 100))
	fault := errors.New("no build today")
	_, err := l.BuildNext(t.Context(), func(dir string) error {
		if _, err := l.BuildNext(t.Context(), nil); !errors.Is(err, live.ErrBuilding) {
			t.Errorf("a second build: %v", err)
		}
		return errors.Join(fs.MkdirAll(dir+"/below", 0o755), fault)
	})
	if !errors.Is(err, fault) {
		t.Error(err)
	}
	if got := directories(fs); got != "000001 GENERATIONS" {
		t.Errorf("left are %s", got)
	}
	cutOver(t, l, buildNext(t, l, tally.History(4, 100)))
	wantStatus(t, l, 2, 1)
}

// TestOutdatedStoreAnswersFromItsLastPosition checks that a generation with other settings answers from its last position, and that one of another
// version answers nothing unless the projection says that it can read the rows.
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
			return reads{tally.Variant{Tally: tally.New(), FoldVersion: 2, ReadKinds: kinds[1:], FoldSettings: tally.New().Settings()}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLive(t, liveOn(fs))
			conformance.Fold(t, l.Serving(), envs[:50])
			closeLive(t, l)
			heard, ready := hearing()
			o := liveOn(fs)
			o.New, o.Listener.StateChanged = test.now, heard.Add
			l = openLive(t, o)
			log := storetest.NewLog(envs...)
			runLive(t, l, log.Subscribe)
			st := l.Status()
			if st.State != store.Outdated || !errors.Is(st.Error, projections.ErrFingerprint) ||
				st.Unreadable == test.answers || st.Answers() != test.answers || heard.String() != "outdated" {
				t.Errorf("%+v, heard %s", st, heard)
			}
			v, err := l.View()
			if test.answers != (err == nil) || err != nil && !errors.Is(err, live.ErrOutdated) {
				t.Errorf("view: %v", err)
			}
			if err == nil {
				if v.Cursor() != envs[49].Cursor || l.Cursor() != envs[49].Cursor {
					t.Errorf("at %+v", v.Cursor())
				}
				_ = v.Close()
				if err := l.WaitFor(t.Context(), envs[49].Seq()); err != nil {
					t.Errorf("wait for what is there: %v", err)
				}
			}
			if err := l.WaitFor(t.Context(), envs[50].Seq()); !errors.Is(err, live.ErrOutdated) {
				t.Errorf("wait for what will not come: %v", err)
			}
			cutOver(t, l, buildNext(t, l, envs[:60])) // Run brings it up to the present
			if err := l.WaitFor(t.Context(), envs[99].Seq()); err != nil {
				t.Fatal(err)
			}
			<-ready
			if st := l.Status(); st.State != store.Ready || st.Error != nil || st.Generation != 2 ||
				!strings.HasPrefix(heard.String(), "outdated ") || !strings.HasSuffix(heard.String(), " ready") {
				t.Errorf("%+v, heard %s", st, heard)
			}
		})
	}
}

// hearing notes states, and closes the channel at the first that is Ready.
func hearing() (*heardStates, <-chan struct{}) {
	ready := make(chan struct{})
	return &heardStates{ready: sync.OnceFunc(func() { close(ready) })}, ready
}

type heardStates struct {
	storetest.States
	ready func()
}

func (h *heardStates) Add(s store.State, err error) {
	h.States.Add(s, err)
	if s == store.Ready {
		h.ready()
	}
}

// reads is a projection that reads the rows of version 1.
type reads struct{ tally.Variant }

func (reads) Reads(was projections.Fingerprint) bool { return was.Version == 1 }

// TestDamagedStoreIsReportedAndRebuilt checks that a store that cannot be opened is reported and can be rebuilt, and does not end the process.
func TestDamagedStoreIsReportedAndRebuilt(t *testing.T) {
	envs := tally.History(4, 100)
	for name, damage := range map[string]func(t *testing.T, fs *vfs.MemFS){
		"no manifest": func(t *testing.T, fs *vfs.MemFS) { removeFiles(t, fs, "MANIFEST", "marker.manifest") },
		"no tables":   func(t *testing.T, fs *vfs.MemFS) { removeFiles(t, fs, ".sst") },
		"manifest spoilt": func(t *testing.T, fs *vfs.MemFS) {
			spoil(t, fs, "MANIFEST")
		},
		"GENERATIONS spoilt": func(t *testing.T, fs *vfs.MemFS) { spoil(t, fs, "GENERATIONS") },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLive(t, liveOn(fs))
			cutOver(t, l, buildNext(t, l, envs[:50]))
			closeLive(t, l)
			damage(t, fs)
			heard, ready := hearing()
			o := liveOn(fs)
			o.Listener.StateChanged = heard.Add
			l = openLive(t, o)
			log := storetest.NewLog(envs...)
			runLive(t, l, log.Subscribe)
			if st := l.Status(); st.State != store.Failed || st.Error == nil || st.Answers() || heard.String() != "failed" {
				t.Errorf("%+v, heard %s", st, heard)
			}
			if _, err := l.View(); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("view: %v", err)
			}
			if err := l.WaitFor(t.Context(), 0); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("wait: %v", err)
			}
			cutOver(t, l, buildNext(t, l, envs[:70]))
			if err := l.WaitFor(t.Context(), envs[99].Seq()); err != nil {
				t.Fatal(err)
			}
			<-ready
			if st := l.Status(); st.State != store.Ready || st.Generation != 3 ||
				!strings.HasPrefix(heard.String(), "failed ") || !strings.HasSuffix(heard.String(), " ready") {
				t.Errorf("%+v, heard %s", st, heard)
			}
			conformance.RowsOf(t, l.Serving()).MustEqual(t, straight(t, envs), "healed")
			closeLive(t, l)
			l = openLive(t, liveOn(fs))
			if st := l.Status(); st.Generation != 3 || st.Error != nil {
				t.Errorf("%+v", st)
			}
		})
	}
}

// files are the files of generation 2, and the file of generations, whose name has one of the parts.
func files(fs *vfs.MemFS, parts ...string) (found []string) {
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

func removeFiles(t *testing.T, fs *vfs.MemFS, parts ...string) {
	t.Helper()
	found := files(fs, parts...)
	for _, name := range found {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no such file")
	}
}

func spoil(t *testing.T, fs *vfs.MemFS, part string) {
	t.Helper()
	spoilt := 0
	for _, name := range files(fs, part) {
		if strings.Contains(name, "marker") {
			continue
		}
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("spoilt in every way that there is")); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		spoilt++
	}
	if spoilt == 0 {
		t.Fatal("there is no such file")
	}
}

// TestFailedProjectionIsRebuiltWhileRunning checks that a projection that fails while it runs can be rebuilt in the running process.
func TestFailedProjectionIsRebuiltWhileRunning(t *testing.T) {
	envs := storetest.Follows(20)
	var made atomic.Int32
	o := live.Options{New: func() projections.Projection {
		p := tally.New()
		if made.Add(1) == 2 { // the first is asked for its name only
			p.FailAt = 10
		}
		return p
	}}
	l := openLive(t, o)
	log := storetest.NewLog(envs...)
	log.Most = 1
	stop := runLive(t, l, log.Subscribe)
	if err := l.WaitFor(t.Context(), 20); !errors.Is(err, tally.ErrFails) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := l.View(); !errors.Is(err, tally.ErrFails) || l.Status().State != store.Failed {
		t.Errorf("view: %v", err)
	}
	if !l.Status().Damaged {
		t.Error("a fold met an impossible row, and nothing rebuilds the store")
	}
	cutOver(t, l, buildNext(t, l, nil))
	if err := l.WaitFor(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	stop()
	conformance.RowsOf(t, l.Serving()).MustEqual(t, straight(t, envs), "healed")
}

// TestViewsOutliveCutOver checks that views of the old generation can still be read, and that the next rebuild waits until they are closed.
func TestViewsOutliveCutOver(t *testing.T) {
	envs := tally.History(3, 60)
	l := openLive(t, live.Options{})
	conformance.Fold(t, l.Serving(), envs[:50])
	v, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, buildNext(t, l, envs))
	want := straight(t, envs[:50]).String()
	if got := rowsOfView(v); got != want || v.Cursor() != envs[49].Cursor {
		t.Errorf("the view has changed: %+v", v.Cursor())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.OpenPrevious(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("previous, while it is read: %v", err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	previous, err := l.OpenPrevious(t.Context())
	if err != nil || previous.Cursor() != envs[49].Cursor {
		t.Errorf("%v", err)
	}
}

func rowsOfView(v *projections.View) string {
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

// TestWaitersOutliveCutOver checks that a caller that waits for a position gets it from the generation that reaches it.
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
			t.Fatalf("waiting ended with the cut-over: %v", err)
		default:
		}
		conformance.Fold(t, l.Serving(), envs)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// TestCallsOnNextGeneration checks what each call does to the next generation, and which calls each state refuses.
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
		t.Errorf("deleted while a next generation is open: %v", err)
	}
	if err := l.CloseNext(l.Serving()); err == nil {
		t.Error("what serves was closed as the next generation")
	}
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, l, 1, 0)
	if _, err := l.CutOver(t.Context(), next); err == nil {
		t.Error("cut over to what is closed")
	}

	fails = true
	next = buildNext(t, l, envs[:5])
	if next.Fold(envs[5:]) == nil {
		t.Fatal("a fold that fails does not")
	}
	if err := l.CloseNext(next); err != nil {
		t.Fatal(err)
	}

	fails = false
	cutOver(t, l, buildNext(t, l, envs))
	wantStatus(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, straight(t, envs), "built after that")
}
