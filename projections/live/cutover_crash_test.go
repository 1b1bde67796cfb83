package live_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// cutOverCuts looks at the disk as it would be after a power cut at every write.
type cutOverCuts struct {
	t    *testing.T
	disk *vfs.MemFS
	envs []*events.Envelope
	want conformance.Rows

	mu     sync.Mutex
	random *rand.Rand
	// floor is a position that is on disk.
	floor uint64
	// lives counts the cuts that left each generation live.
	cuts   int
	lives  map[uint32]int
	failed bool
}

func (c *cutOverCuts) String() string { return "power cuts" }

func (c *cutOverCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	shares := []int{50, 0}
	if testing.Short() {
		shares = shares[:1]
	}
	for _, unsynced := range shares {
		if c.failed {
			return nil
		}
		c.cuts++
		disk := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: c.random})
		if err := c.check(disk); err != nil {
			c.failed = true
			c.t.Errorf("power cut %d (%s), %d %% of what was not synced survives: %v", c.cuts, op.Path, unsynced, err)
		}
	}
	return nil
}

// check starts again: one whole generation serves, at a position that was on disk or a later one; it folds the rest, another is
// built, and both have the rows of a straight fold.
func (c *cutOverCuts) check(disk *vfs.MemFS) error {
	l, err := live.Open(live.Options{Options: store.Options{FS: disk, Dir: "data"}, New: newTally})
	if err != nil {
		return err
	}
	defer l.Close()
	st := l.Status()
	if st.State != store.Starting || st.Cursor.Seq < c.floor {
		return fmt.Errorf("generation %d is %s at %d, not at %d: %w", st.Generation, st.State, st.Cursor.Seq, c.floor, st.Error)
	}
	c.lives[st.Generation]++
	whole := func(s *store.Store) error {
		if err := s.Fold(c.envs[conformance.IndexAfter(c.envs, s.Cursor()):]); err != nil {
			return err
		}
		if diff := conformance.RowsOf(c.t, s).Diff(c.want); diff != "" {
			return fmt.Errorf("generation %d: %s", s.Status().Generation, diff)
		}
		return nil
	}
	if err := whole(l.Serving()); err != nil {
		return err
	}
	next := buildNext(c.t, l, c.envs[:len(c.envs)/2])
	if err := whole(next); err != nil {
		return err
	}
	if _, err := l.CutOver(c.t.Context(), next); err != nil {
		return err
	}
	return whole(l.Serving())
}

// TestCrashInCutOverLeavesOneWholeGeneration builds generations, cuts over and rolls back, and cuts the power at every write (I3).
func TestCrashInCutOverLeavesOneWholeGeneration(t *testing.T) {
	envs := tally.History(8, 24)
	c := &cutOverCuts{
		t: t, envs: envs, want: straight(t, envs), disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(9, 10)),
		lives: map[uint32]int{},
	}
	o := live.Options{Options: store.Options{
		FS: errorfs.Wrap(c.disk, c), Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10},
	}}
	l := openLive(t, o)
	onDisk := func(s *store.Store) {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.floor = l.Serving().Cursor().Seq
	}
	conformance.Fold(t, l.Serving(), envs[:12])
	onDisk(l.Serving())
	if err := l.CloseNext(buildNext(t, l, envs[:6])); err != nil {
		t.Fatal(err)
	}
	next := buildNext(t, l, envs[:14])
	conformance.Fold(t, next, envs[14:16])
	cutOver(t, l, next)
	onDisk(l.Serving())
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, previous, envs[:18])
	cutOver(t, l, previous)
	onDisk(l.Serving())
	cutOver(t, l, buildNext(t, l, envs))
	closeLive(t, l)
	t.Logf("%d cuts, live were %v", c.cuts, c.lives)
	if c.lives[1] == 0 || c.lives[2] == 0 || c.lives[3] == 0 {
		t.Error("the cuts have missed something")
	}
}
