package live_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// oldFold and newFold are two folds that differ in a setting. They stand for two versions of a
// program with different folds.
func oldFold() projections.Projection { return tally.New() }

func newFold() projections.Projection { return &tally.Tally{Copies: 3, Chunk: 7} }

var (
	preparedLog   = events.LogID{1}
	preparedEpoch = uint32(1)
)

// foldOptions returns options for a Live with the given fold.
func foldOptions(fs store.FS, fold func() projections.Projection) live.Options {
	return live.Options{
		Options: store.Options{FS: fs, Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10}}, New: fold,
		Log: preparedLog, Epoch: preparedEpoch,
	}
}

// preparationOf returns the preparation of the new fold.
func preparationOf(fs store.FS) *live.Preparation {
	return &live.Preparation{
		Options: store.Options{FS: fs, Dir: "data", Projection: newFold()}, Log: preparedLog, Epoch: preparedEpoch,
	}
}

// prepareNewFold builds a generation of the new fold from the envelopes in built, folds those in
// folded into it, and marks it as complete.
func prepareNewFold(t *testing.T, fs store.FS, built, folded []*events.Envelope) *live.Preparation {
	t.Helper()
	p := preparationOf(fs)

	b, err := build.New(build.Options{FS: fs, Dir: p.Dir(), New: newFold})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Add(built), b.Finish(t.Context()), b.Close()); err != nil {
		t.Fatal(err)
	}

	s, err := store.Open(p.StoreOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Fold(folded), s.Close(), p.Complete()); err != nil {
		t.Fatal(err)
	}
	return p
}

// checkServing checks which generation serves. It then folds the envelopes that the generation
// lacks, and checks that the generation has the rows of all envelopes.
func checkServing(
	t *testing.T, l *live.Live, fold func() projections.Projection, generation, previous uint32, envs []*events.Envelope,
) {
	t.Helper()
	st := l.Status()
	if st.State != store.Starting || st.Generation != generation || st.Previous != previous {
		t.Fatalf("got generation %d in state %s, previous %d, error %v; want generation %d in state %s, previous %d",
			st.Generation, st.State, st.Previous, st.Error, generation, store.Starting, previous)
	}

	s := l.Serving()
	if err := s.Fold(envs[conformance.IndexAfter(envs, s.Cursor()):]); err != nil {
		t.Fatal(err)
	}
	if diff := conformance.RowsOf(t, s).Diff(conformance.Straight(t, fold(), envs)); diff != "" {
		t.Errorf("rows of generation %d differ from those of a straight fold: %s", generation, diff)
	}
}

// TestPreparedGenerationReplacesOutdatedOne checks that a prepared generation serves after a change
// to the new fold, and that changes back and forth need no rebuild.
func TestPreparedGenerationReplacesOutdatedOne(t *testing.T) {
	envs := tally.History(11, 120)
	fs := vfs.NewMem()
	l := openLive(t, foldOptions(fs, oldFold))
	conformance.Fold(t, l.Serving(), envs[:80])
	closeLive(t, l)
	prepareNewFold(t, fs, envs[:60], envs[60:90])

	// The old program starts again and leaves the prepared generation alone.
	l = openLive(t, foldOptions(fs, oldFold))
	checkServing(t, l, oldFold, 1, 0, envs[:100])
	closeLive(t, l)

	for _, step := range []struct {
		name                 string
		fold                 func() projections.Projection
		generation, previous uint32
		envelopes            int
	}{
		{"new", newFold, 2, 1, 105},
		{"new again", newFold, 2, 1, 108},
		{"old", oldFold, 1, 2, 112},
		{"new for good", newFold, 2, 1, 120},
	} {
		t.Run(step.name, func(t *testing.T) {
			l := openLive(t, foldOptions(fs, step.fold))
			checkServing(t, l, step.fold, step.generation, step.previous, envs[:step.envelopes])
			closeLive(t, l)
			if got := listDirectories(fs); got != "000001 000002 GENERATIONS" {
				t.Errorf("got the directories %s, want generations 1 and 2", got)
			}
		})
	}
}

// TestPreviousGenerationOfAnEarlierEpochIsNotUsed checks that a program for which the live
// generation is outdated does not continue the previous one if the log has begun a new epoch since:
// the epoch may have begun with the erasure of a user whose deletion the previous generation has
// not folded.
func TestPreviousGenerationOfAnEarlierEpochIsNotUsed(t *testing.T) {
	envs := tally.History(11, 60)
	fs := vfs.NewMem()
	l := openLive(t, foldOptions(fs, oldFold))
	conformance.Fold(t, l.Serving(), envs[:30])
	closeLive(t, l)
	prepareNewFold(t, fs, envs[:20], envs[20:40])
	l = openLive(t, foldOptions(fs, newFold))
	checkServing(t, l, newFold, 2, 1, envs)
	closeLive(t, l)

	o := foldOptions(fs, oldFold)
	o.Epoch++
	o.ReadOnly = true
	l = openLive(t, o)
	if got := l.Replacement(); got != "" {
		t.Errorf("Replacement in the next epoch: got %q, want none", got)
	}
	closeLive(t, l)
	o.ReadOnly = false
	l = openLive(t, o)
	if st := l.Status(); st.State != store.Outdated || st.Generation != 2 {
		t.Errorf("after a start in the next epoch: got generation %d in state %s, want generation 2 in state %s",
			st.Generation, st.State, store.Outdated)
	}
	closeLive(t, l)

	// The generation stays, and the program that has built the live one continues that.
	o.New = newFold
	l = openLive(t, o)
	checkServing(t, l, newFold, 2, 1, envs)
}

// TestFailedOpenLeavesNoStoreInUse opens a Live whose generation is outdated while another store has
// the previous generation open. Open must fail, and a later Open must find all files free.
func TestFailedOpenLeavesNoStoreInUse(t *testing.T) {
	envs := tally.History(17, 60)
	fs := vfs.NewMem()
	l := openLive(t, foldOptions(fs, oldFold))
	conformance.Fold(t, l.Serving(), envs[:40])
	closeLive(t, l)
	prepareNewFold(t, fs, envs[:30], envs[30:50])
	closeLive(t, openLive(t, foldOptions(fs, newFold)))

	// Another store has generation 1 open, to which a program with the old fold would go back.
	previous, err := store.Open(store.Options{FS: fs, Dir: "data", Generation: 1, Projection: oldFold()})
	if err != nil {
		t.Fatal(err)
	}
	o := foldOptions(fs, oldFold)
	o.Dir = "data"
	if _, err := live.Open(o); !errors.Is(err, projections.ErrInUse) {
		t.Fatalf("open while the previous generation is in use: got error %v, want %v", err, projections.ErrInUse)
	}
	if err := previous.Close(); err != nil {
		t.Fatal(err)
	}

	l = openLive(t, foldOptions(fs, oldFold))
	checkServing(t, l, oldFold, 1, 2, envs)
	closeLive(t, l)
}

// TestPreparedGenerationOfNewProjection checks that a projection that the data directory does not
// have begins with its prepared generation.
func TestPreparedGenerationOfNewProjection(t *testing.T) {
	envs := tally.History(12, 40)
	fs := vfs.NewMem()
	prepareNewFold(t, fs, envs[:20], envs[20:30])
	for range 2 {
		l := openLive(t, foldOptions(fs, newFold))
		checkServing(t, l, newFold, 1, 0, envs)
		closeLive(t, l)
	}
}

// TestPreparedGenerationThatDoesNotFitIsNotUsed checks that a prepared generation of another log,
// epoch or fold, or one that is incomplete or damaged, is not used. The live generation stays, and
// answers from its last state.
func TestPreparedGenerationThatDoesNotFitIsNotUsed(t *testing.T) {
	envs := tally.History(13, 40)
	for name, spoil := range map[string]func(t *testing.T, p *live.Preparation, o *live.Options){
		"another log":     func(_ *testing.T, _ *live.Preparation, o *live.Options) { o.Log = events.LogID{2} },
		"another epoch":   func(_ *testing.T, _ *live.Preparation, o *live.Options) { o.Epoch++ },
		"no log is given": func(_ *testing.T, _ *live.Preparation, o *live.Options) { o.Log = events.LogID{} },
		"another fold": func(_ *testing.T, _ *live.Preparation, o *live.Options) {
			o.New = func() projections.Projection { return &tally.Tally{Copies: 4, Chunk: 7} }
		},
		"incomplete": func(t *testing.T, p *live.Preparation, o *live.Options) {
			if err := o.FS.Remove(o.FS.PathJoin(p.Dir(), "PREPARED")); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, p *live.Preparation, o *live.Options) {
			names, err := o.FS.List(p.Dir())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if strings.Contains(strings.ToLower(name), "manifest") {
					if err := o.FS.Remove(o.FS.PathJoin(p.Dir(), name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		"removed": func(t *testing.T, p *live.Preparation, _ *live.Options) {
			if err := p.Remove(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLive(t, foldOptions(fs, oldFold))
			conformance.Fold(t, l.Serving(), envs[:30])
			closeLive(t, l)

			p := prepareNewFold(t, fs, envs[:20], envs[20:30])
			o := foldOptions(fs, newFold)
			spoil(t, p, &o)

			l = openLive(t, o)
			defer closeLive(t, l)
			if st := l.Status(); st.State != store.Outdated || st.Generation != 1 {
				t.Errorf("got generation %d in state %s, want generation 1 in state %s", st.Generation, st.State, store.Outdated)
			}
			if got := listDirectories(fs); strings.Contains(got, "000002") {
				t.Errorf("got the directories %s, want no generation 2", got)
			}
		})
	}
}

// TestErasureRemovesPreparedGeneration checks that DeletePrevious, which an erasure calls, also
// removes a prepared generation, because it has rows of the erased user.
func TestErasureRemovesPreparedGeneration(t *testing.T) {
	envs := tally.History(14, 20)
	fs := vfs.NewMem()
	prepareNewFold(t, fs, envs, nil)
	l := openLive(t, foldOptions(fs, oldFold))
	if err := l.DeletePrevious(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listDirectories(fs); got != "000001" {
		t.Errorf("got the directories %s, want generation 1 only", got)
	}
}

// TestErasureRemovesPreparedGenerationThatCrashLeft checks that DeletePrevious also removes a
// prepared generation that a crash has kept from being named as the live one. Before that, a start
// keeps the generation for a program with the other fold, unless it is of an earlier epoch.
func TestErasureRemovesPreparedGenerationThatCrashLeft(t *testing.T) {
	envs := tally.History(14, 20)
	fs := vfs.NewMem()
	closeLive(t, openLive(t, foldOptions(fs, oldFold)))
	leavePrepared := func() {
		t.Helper()
		p := prepareNewFold(t, fs, envs, nil)
		err := errors.Join(disk.WriteGenerations(fs, "data/tally", disk.Generations{Live: 1}), fs.Rename(p.Dir(), "data/tally/000002"))
		if err != nil {
			t.Fatal(err)
		}
	}

	leavePrepared()
	l := openLive(t, foldOptions(fs, oldFold))
	if got := listDirectories(fs); got != "000001 000002 GENERATIONS prepared" {
		t.Errorf("after a start: got the directories %s, want generation 2, too", got)
	}
	if err := l.DeletePrevious(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listDirectories(fs); got != "000001 GENERATIONS" {
		t.Errorf("after DeletePrevious: got the directories %s, want generation 1 only", got)
	}
	closeLive(t, l)

	leavePrepared()
	o := foldOptions(fs, oldFold)
	o.Epoch++
	openLive(t, o)
	if got := listDirectories(fs); strings.Contains(got, "000002") {
		t.Errorf("after a start in the next epoch: got the directories %s, want no generation 2", got)
	}
}

// startCrashChecker checks, at every write of a start with a prepared generation, what a power cut
// at that moment would leave on disk.
type startCrashChecker struct {
	t    *testing.T
	disk *vfs.MemFS
	envs []*events.Envelope
	// oldRows and newRows are the rows that each program must have at the end.
	oldRows, newRows programRows

	mu     sync.Mutex
	random *rand.Rand
	cuts   int
	// live counts the cuts after which each generation was live.
	live map[uint32]int
	err  error
}

// programRows is a program, identified by its fold, and the rows of a straight fold.
type programRows struct {
	fold func() projections.Projection
	rows conformance.Rows
}

func (*startCrashChecker) String() string { return "power cuts" }

func (c *startCrashChecker) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	shares := []int{0, 50}
	if testing.Short() {
		shares = shares[:1]
	}
	for _, unsynced := range shares {
		if c.err != nil {
			return nil
		}
		c.cuts++
		for _, program := range []*programRows{&c.oldRows, &c.newRows} {
			disk := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: c.random})
			if err := c.check(disk, program); err != nil {
				c.err = fmt.Errorf("power cut %d (%s), %d %% of what was not synced survives: %w", c.cuts, op.Path, unsynced, err)
			}
		}
	}
	return nil
}

// check starts a program after the cut. Both the new program and the old one must find a generation
// that they can continue.
func (c *startCrashChecker) check(disk *vfs.MemFS, program *programRows) error {
	l, err := live.Open(withDir(foldOptions(disk, program.fold)))
	if err != nil {
		return err
	}
	defer l.Close()

	st := l.Status()
	if st.Error != nil {
		return fmt.Errorf("generation %d is %s: %w", st.Generation, st.State, st.Error)
	}

	c.live[st.Generation]++
	s := l.Serving()
	if err := s.Fold(c.envs[conformance.IndexAfter(c.envs, s.Cursor()):]); err != nil {
		return err
	}
	if diff := conformance.RowsOf(c.t, s).Diff(program.rows); diff != "" {
		return fmt.Errorf("generation %d: %s", st.Generation, diff)
	}
	return nil
}

func withDir(o live.Options) live.Options {
	o.Dir = "data"
	return o
}

// TestPowerCutsWhilePreparedGenerationReplacesLiveOne checks that nothing that was prepared is lost,
// at whatever moment a crash hits (I3).
func TestPowerCutsWhilePreparedGenerationReplacesLiveOne(t *testing.T) {
	envs := tally.History(15, 24)
	c := &startCrashChecker{
		t: t, envs: envs, disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(3, 4)), live: map[uint32]int{},
		oldRows: programRows{oldFold, conformance.Straight(t, oldFold(), envs)},
		newRows: programRows{newFold, conformance.Straight(t, newFold(), envs)},
	}
	l := openLive(t, foldOptions(c.disk, oldFold))
	conformance.Fold(t, l.Serving(), envs[:20])
	closeLive(t, l)
	prepareNewFold(t, c.disk, envs[:12], envs[12:18])

	// The power is cut at every write of this start.
	l, err := live.Open(withDir(foldOptions(errorfs.Wrap(c.disk, c), newFold)))
	if err != nil {
		t.Fatal(err)
	}
	checkServing(t, l, newFold, 2, 1, envs)
	closeLive(t, l)

	if c.err != nil {
		t.Fatal(c.err)
	}
	if c.cuts < 20 {
		t.Errorf("got %d power cuts, want at least 20", c.cuts)
	}
	if c.live[1] == 0 || c.live[2] == 0 {
		t.Errorf("got live generations %v, want cuts that leave each of 1 and 2 live", c.live)
	}
}
