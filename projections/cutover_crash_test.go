package projections_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/conformance"
	"github.com/skein-feed/skein/projections/internal/tally"
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
	// continued counts the cuts after which a build was continued, lives those that left each generation live.
	cuts, continued int
	lives           map[uint32]int
	failed          bool
}

func (c *cutOverCuts) String() string { return "power cuts" }

func (c *cutOverCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, unsynced := range []int{0, 50} {
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

// check starts again: one whole generation serves, at a position that was on disk or a later one; it folds the rest, what
// was being built is continued, and both have the rows of a straight fold.
func (c *cutOverCuts) check(disk *vfs.MemFS) error {
	l, err := projections.OpenLive(projections.LiveOptions{Options: projections.Options{FS: disk, Dir: "data"}, New: newTally})
	if err != nil {
		return err
	}
	defer l.Close()
	st := l.Status()
	if st.State != projections.Starting || st.Cursor.Seq < c.floor {
		return fmt.Errorf("generation %d is %s at %d, not at %d: %w", st.Generation, st.State, st.Cursor.Seq, c.floor, st.Error)
	}
	c.lives[st.Generation]++
	whole := func(s *projections.Store) error {
		if err := s.Fold(c.envs[conformance.After(c.envs, s.Cursor()):]); err != nil {
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
	next, err := l.Build(c.t.Context(), projections.Bounds{})
	if err != nil {
		return err
	}
	if next.Cursor().Seq > 0 {
		c.continued++
	}
	if err := whole(next); err != nil {
		return err
	}
	if _, err := l.CutOver(c.t.Context(), next); err != nil {
		return err
	}
	return whole(l.Serving())
}

// TestPowerCutsInCutOver builds generations, cuts over, and goes back, and cuts the power at every write (I3).
func TestPowerCutsInCutOver(t *testing.T) {
	envs := tally.History(8, 24)
	c := &cutOverCuts{
		t: t, envs: envs, want: straight(t, envs), disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(9, 10)),
		lives: map[uint32]int{},
	}
	o := projections.LiveOptions{Options: projections.Options{
		FS: errorfs.Wrap(c.disk, c), Bounds: projections.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10},
	}}
	l := openLive(t, o)
	onDisk := func(s *projections.Store) {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.floor = l.Serving().Cursor().Seq
	}
	conformance.Fold(t, l.Serving(), envs[:12])
	onDisk(l.Serving())
	next := build(t, l, envs[:6])
	if err := next.Flush(); err != nil {
		t.Fatal(err)
	}
	next, err := l.Reopen(next)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, next, envs[:16])
	cutOver(t, l, next)
	onDisk(l.Serving())
	former, err := l.Former(t.Context(), projections.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, former, envs[:18])
	cutOver(t, l, former)
	onDisk(l.Serving())
	if err := l.Discard(build(t, l, envs)); err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, build(t, l, envs))
	closeLive(t, l)
	t.Logf("%d cuts, %d builds continued, live were %v", c.cuts, c.continued, c.lives)
	if c.continued == 0 || c.lives[1] == 0 || c.lives[2] == 0 || c.lives[3] == 0 {
		t.Error("the cuts have missed something")
	}
}
