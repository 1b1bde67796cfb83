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

// cutOverCrashChecker checks before every write what a power cut at that moment would leave.
type cutOverCrashChecker struct {
	t    *testing.T
	disk *vfs.MemFS
	envs []*events.Envelope
	want conformance.Rows

	mu     sync.Mutex
	random *rand.Rand
	// flushedSeq is a position that is on disk.
	flushedSeq uint64
	// cuts is the number of power cuts. liveCounts counts how many of them left each generation
	// live.
	cuts       int
	liveCounts map[uint32]int
	failed     bool
}

func (c *cutOverCrashChecker) String() string { return "power cuts" }

func (c *cutOverCrashChecker) MaybeError(op errorfs.Op) error {
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

// check opens the projection as after a restart. One whole generation must serve, at a position
// that was on disk or a later one. It must be able to fold the rest, another generation must be
// able to replace it, and both must have the rows of a straight fold.
func (c *cutOverCrashChecker) check(disk *vfs.MemFS) error {
	l, err := live.Open(live.Options{Options: store.Options{FS: disk, Dir: "data"}, New: newTally})
	if err != nil {
		return err
	}
	defer l.Close()

	st := l.Status()
	if st.State != store.Starting || st.Cursor.Seq < c.flushedSeq {
		return fmt.Errorf("generation %d is %s at %d, want starting at %d or later: %w", st.Generation, st.State, st.Cursor.Seq, c.flushedSeq, st.Error)
	}
	c.liveCounts[st.Generation]++

	checkRest := func(s *store.Store) error {
		if err := s.Fold(c.envs[conformance.IndexAfter(c.envs, s.Cursor()):]); err != nil {
			return err
		}
		if diff := conformance.RowsOf(c.t, s).Diff(c.want); diff != "" {
			return fmt.Errorf("generation %d: %s", s.Status().Generation, diff)
		}
		return nil
	}

	if err := checkRest(l.Serving()); err != nil {
		return err
	}

	// Replace the generation by one that is built from half of the log. This takes most of the
	// time, so short tests do it after every third cut.
	if testing.Short() && c.cuts%3 != 0 {
		return nil
	}
	next := buildNext(c.t, l, c.envs[:len(c.envs)/2])
	if err := checkRest(next); err != nil {
		return err
	}
	if _, err := l.CutOver(c.t.Context(), next); err != nil {
		return err
	}
	return checkRest(l.Serving())
}

// TestCrashInCutOverLeavesOneWholeGeneration builds generations, cuts over and rolls back, and cuts
// the power at every write (I3).
func TestCrashInCutOverLeavesOneWholeGeneration(t *testing.T) {
	envs := tally.History(8, 24)
	c := &cutOverCrashChecker{
		t: t, envs: envs, want: foldStraight(t, envs), disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(9, 10)),
		liveCounts: map[uint32]int{},
	}
	o := live.Options{Options: store.Options{
		FS: errorfs.Wrap(c.disk, c), Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10},
	}}
	l := openLive(t, o)

	flush := func(s *store.Store) {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flushedSeq = l.Serving().Cursor().Seq
	}

	// Generation 1 folds some envelopes, and a next generation is closed unused.
	conformance.Fold(t, l.Serving(), envs[:12])
	flush(l.Serving())
	if err := l.CloseNext(buildNext(t, l, envs[:6])); err != nil {
		t.Fatal(err)
	}

	// Cut over to generation 2.
	next := buildNext(t, l, envs[:14])
	conformance.Fold(t, next, envs[14:16])
	cutOver(t, l, next)
	flush(l.Serving())

	// Roll back to generation 1.
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, previous, envs[:18])
	cutOver(t, l, previous)
	flush(l.Serving())

	// Cut over to generation 3.
	cutOver(t, l, buildNext(t, l, envs))
	closeLive(t, l)
	t.Logf("%d cuts, live were %v", c.cuts, c.liveCounts)
	if c.liveCounts[1] == 0 || c.liveCounts[2] == 0 || c.liveCounts[3] == 0 {
		t.Errorf("got live generations %v, want cuts that leave each of 1, 2 and 3 live", c.liveCounts)
	}
}
