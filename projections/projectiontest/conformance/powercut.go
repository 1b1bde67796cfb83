package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// powerCutEnvelopes is how much of a history is folded under power cuts.
const (
	powerCutEnvelopes      = 60
	powerCutEnvelopesShort = 15
)

func testPowerCuts(t *testing.T, c Case, h History) {
	most := powerCutEnvelopes
	if testing.Short() {
		most = powerCutEnvelopesShort
	}
	envs := h.Envelopes[:min(most, len(h.Envelopes))]
	PowerCuts(t, c.New, envs, allBounds["flushes"])
}

// Cuts counts what a run of [PowerCuts] met.
type Cuts struct {
	// Writes to the file system, and at each of them two crashes: one that loses all that was not synced, and one that
	// keeps some of it.
	Writes int
	// Fresh crashes left an empty store, Partial ones an event half folded.
	Fresh, Partial int
}

// PowerCuts folds envelopes and cuts the power at every write to the file system. Each time the store is opened again:
// it must hold a straight fold of a prefix, and after the rest is folded, that of all.
func PowerCuts(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) Cuts {
	t.Helper()
	p := &powerCuts{
		t: t, envs: envs, bounds: bounds, newProjection: newProjection,
		random: rand.New(rand.NewPCG(5, 6)), prefixes: prefixes(t, newProjection(), envs),
	}
	p.fold(vfs.NewCrashableMem())
	return p.cuts
}

// PowerCutsTwice cuts the power, and again while the store folds the rest: at every write after every sixth of the first
// crashes.
func PowerCutsTwice(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) {
	t.Helper()
	var disks []*vfs.MemFS
	p := &powerCuts{
		t: t, envs: envs, bounds: bounds, newProjection: newProjection,
		random: rand.New(rand.NewPCG(7, 8)), prefixes: prefixes(t, newProjection(), envs),
		keep: func(disk *vfs.MemFS) { disks = append(disks, disk) },
	}
	p.fold(vfs.NewCrashableMem())
	p.keep = nil
	for i := 0; i < len(disks); i += 6 {
		p.fold(disks[i])
	}
}

// fold folds all that the store on the disk does not know yet.
func (p *powerCuts) fold(disk *vfs.MemFS) {
	p.t.Helper()
	p.disk = disk
	before := p.cuts.Writes
	s := Open(p.t, errorfs.Wrap(disk, p), p.newProjection(), p.bounds)
	rest := p.envs[After(p.envs, s.Cursor()):]
	for i := range rest {
		Fold(p.t, s, rest[i:i+1])
		if i%20 == 19 {
			if err := s.Flush(); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	Close(p.t, s)
	if p.cuts.Writes == before {
		p.t.Fatal("no write was seen")
	}
}

// prefixes returns the rows after each envelope, and before the first.
func prefixes(t *testing.T, p projections.Projection, envs []*events.Envelope) []Rows {
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	rows := []Rows{RowsOf(t, s)}
	for i := range envs {
		Fold(t, s, envs[i:i+1])
		rows = append(rows, RowsOf(t, s))
	}
	Close(t, s)
	return rows
}

// powerCuts is an injector of errors that injects none, but looks at the disk as it would be after a power cut.
type powerCuts struct {
	t             *testing.T
	newProjection func() projections.Projection
	envs          []*events.Envelope
	prefixes      []Rows
	bounds        store.Bounds
	disk          *vfs.MemFS
	// keep gets the disks instead of being checked.
	keep func(*vfs.MemFS)

	mu     sync.Mutex // Pebble writes from several goroutines
	random *rand.Rand
	cuts   Cuts
	failed bool
}

func (p *powerCuts) String() string { return "power cuts" }

func (p *powerCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed {
		return nil
	}
	p.cuts.Writes++
	for _, unsynced := range []int{0, 50} {
		crashed := p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: p.random})
		if p.keep != nil {
			p.keep(crashed)
			continue
		}
		if err := p.check(crashed); err != nil {
			p.failed = true
			p.t.Errorf("power cut at write %d (%s), %d %% of what was not synced survives: %v",
				p.cuts.Writes, op.Path, unsynced, err)
			return nil
		}
	}
	return nil
}

// check opens the store that a crash has left. It is called from Pebble's goroutines, so it must not end the test.
func (p *powerCuts) check(disk store.FS) (err error) {
	s, err := store.Open(store.Options{FS: disk, Dir: "data", Projection: p.newProjection(), Bounds: p.bounds})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	at := After(p.envs, s.Cursor())
	if at == 0 {
		p.cuts.Fresh++
	}
	rows, err := rowsOf(s)
	switch {
	case errors.Is(err, projections.ErrNotReady):
		p.cuts.Partial++
		if err := s.Fold(p.envs[at : at+1]); err != nil {
			return fmt.Errorf("finish envelope %d: %w", p.envs[at].Seq(), err)
		}
		if err := s.Flush(); err != nil {
			return err
		}
		if rows, err = rowsOf(s); err != nil {
			return err
		}
		at++
	case err != nil:
		return err
	}
	if diff := rows.Diff(p.prefixes[at]); diff != "" {
		return fmt.Errorf("not the fold of %d envelopes:\n%s", at, diff)
	}
	if err := s.Fold(p.envs[at:]); err != nil {
		return fmt.Errorf("fold the rest: %w", err)
	}
	if err := s.Flush(); err != nil {
		return err
	}
	if rows, err = rowsOf(s); err != nil {
		return err
	}
	if diff := rows.Diff(p.prefixes[len(p.envs)]); diff != "" {
		return fmt.Errorf("after the rest, from envelope %d on:\n%s", at, diff)
	}
	return nil
}
