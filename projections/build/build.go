package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Options of a build.
type Options struct {
	// FS is the file system, Dir the directory of the store that is made, which must not exist. Other files stand in a directory beside
	// it, with ".parts" behind its name, until the Builder is closed.
	FS  projections.FS
	Dir string
	// New returns a projection, to several goroutines at a time. Each partition is folded by one of its own.
	New func() projections.Projection
	// Partitions are those to build; nil means all.
	Partitions *projections.Partitions
	// Memory is about how many bytes the build takes. A partition whose rows do not fit into it is folded on disk, which is slow.
	// Default 512 MiB.
	Memory int
	// Workers is how many partitions are folded at a time, if there is memory for so many. Default: one for each core that the
	// process may use.
	Workers int
	// Around is called for every partition, from several goroutines, with what folds it. It may wait, and its error ends the build; nil
	// means nothing is around.
	Around func(ctx context.Context, fold func() error) error
	// Folded is called, from several goroutines, when so many more events are folded; nil means it is not called.
	Folded func(events uint64)
	// Merging is called before every few thousand rows of the merge, with how many of all rows are merged. It may wait, and its error
	// ends the build; nil means it is not called.
	Merging func(ctx context.Context, rows, all int64) error
}

// Builder makes a store. The caller adds the envelopes of a log from its start on, then finishes, and closes in any case.
type Builder struct {
	o Options
	// projection is one of New, which folds nothing.
	projection projections.Projection
	parts      string
	sequencer  *projections.Sequencer
	scatter    *scatter
	audiences  *audiences
	files      atomic.Int64
	// rows are in tables.
	rows atomic.Int64
	log  events.LogID
	// handed is set in the process that finishes what another has added; it has no sequencer.
	handed *Handover
	// sampled folds samples.
	sampled projections.MemoryFold
}

// New begins a build.
func New(o Options) (*Builder, error) {
	b := prepare(o)
	b.audiences = newAudiences(b.projection, b.o.Memory/16)
	if err := o.FS.RemoveAll(b.parts); err != nil {
		return nil, err
	}
	if err := o.FS.MkdirAll(b.parts, 0o755); err != nil {
		return nil, err
	}
	var err error
	if b.scatter, err = newScatter(o.FS, b.eventsFile()); err != nil {
		return nil, err
	}
	b.sequencer, err = projections.NewSequencer(b.projection, o.Partitions, b.accepted)
	return b, err
}

func prepare(o Options) *Builder {
	o.Memory = cmp.Or(o.Memory, 512<<20)
	// GOMAXPROCS may be more than there are cores, and folds that share a core spoil each other's cache.
	o.Workers = cmp.Or(o.Workers, min(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	if o.Around == nil {
		o.Around = func(_ context.Context, fold func() error) error { return fold() }
	}
	if o.Folded == nil {
		o.Folded = func(uint64) {}
	}
	if o.Merging == nil {
		o.Merging = func(context.Context, int64, int64) error { return nil }
	}
	return &Builder{o: o, projection: o.New(), parts: o.Dir + ".parts"}
}

func (b *Builder) eventsFile() string { return b.o.FS.PathJoin(b.parts, "events") }

// accepted appends an event to those of the partitions to which it is delivered.
func (b *Builder) accepted(ev *events.Event, logTime events.Micros) error {
	var to projections.Partitions
	if ev.Kind == events.BackfillClosed {
		to.AddAll()
	} else {
		b.projection.Route(ev, &to)
		b.audiences.narrow(ev, &to)
	}
	return to.Each(func(partition uint8) error {
		if b.o.Partitions != nil && !b.o.Partitions.Has(partition) {
			return nil
		}
		return b.scatter.add(partition, ev, logTime)
	})
}

// Add adds envelopes, which must follow each other in the log, from its start on.
func (b *Builder) Add(envs []*events.Envelope) error {
	if len(envs) > 0 {
		b.log = envs[0].Cursor.Log
	}
	return b.sequencer.Fold(envs)
}

// Cursor returns where the last envelope ends.
func (b *Builder) Cursor() events.Cursor { return b.sequencer.Cursor() }

// bytesPerByte is how much memory the rows take of the events of a partition, for each byte of those: four rows of a follow of 30
// bytes, of some 100 bytes each with what finds them.
const bytesPerByte = 14

// Scattered returns how many events are to be folded, each counted once a partition.
func (b *Builder) Scattered() (events int64) {
	for i := range b.scatter.parts {
		events += b.scatter.parts[i].events
	}
	return events
}

// Rows returns how many rows the store has that [Builder.Finish] has made.
func (b *Builder) Rows() int64 { return b.rows.Load() }

// Workers returns how many partitions are folded at a time, if what was added is such a part of all that will be.
func (b *Builder) Workers(part float64) int {
	largest := int64(1)
	for i := range b.scatter.parts {
		largest = max(largest, b.scatter.parts[i].raw)
	}
	return max(1, min(b.o.Workers, int(float64(b.o.Memory)*part/float64(largest*bytesPerByte))))
}

// Finish folds what was added and makes the store, which stands at [Builder.Cursor].
func (b *Builder) Finish(ctx context.Context) error {
	if b.handed == nil {
		if err := b.scatter.done(); err != nil {
			return err
		}
	}
	workers := b.Workers(1)
	ranges := b.ranges(8 * workers)
	var mu sync.Mutex
	var tables []string
	var late []*runs
	group, folding := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, r := range ranges {
		group.Go(func() error {
			names, runs, err := b.fold(folding, r[0], r[1], b.o.Memory/4/len(ranges))
			mu.Lock()
			defer mu.Unlock()
			tables, late = append(tables, names...), append(late, runs)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("build %s: %w", b.projection.Name(), err)
	}
	rest, err := b.merge(ctx, late)
	if err != nil {
		return fmt.Errorf("build %s: %w", b.projection.Name(), err)
	}
	return projections.CreateStore(ctx, b.o.FS, b.o.Dir, b.projection, tables, rest)
}

// ranges cuts the partitions into neighbors with about as many bytes of events each.
func (b *Builder) ranges(n int) (ranges [][2]int) {
	all := int64(0)
	for i := range b.scatter.parts {
		all += b.scatter.parts[i].raw
	}
	from, sum := 0, int64(0)
	for p := range events.NumPartitions {
		sum += b.scatter.parts[p].raw
		if sum*int64(n) >= all*int64(len(ranges)+1) || p == events.NumPartitions-1 {
			ranges = append(ranges, [2]int{from, p + 1})
			from = p + 1
		}
	}
	return ranges
}

// fold folds the partitions from one on up to another, and writes their rows: those in place into tables.
func (b *Builder) fold(ctx context.Context, from, to, most int) (names []string, rest *runs, err error) {
	t := &tables{b: b, level: projections.LastLevel}
	rest = &runs{b: b, most: most}
	var m projections.MemoryFold // one for all: they take about as much memory each
	for p := from; p < to; p++ {
		if ctx.Err() != nil {
			return nil, nil, errors.Join(ctx.Err(), t.close())
		}
		if b.o.Partitions != nil && !b.o.Partitions.Has(uint8(p)) {
			continue
		}
		err := b.o.Around(ctx, func() error { return b.foldOne(&m, uint8(p), t, rest) })
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("partition %d: %w", p, err), t.close())
		}
	}
	return t.names, rest, t.close()
}

func (b *Builder) foldOne(m *projections.MemoryFold, partition uint8, t *tables, rest *runs) (err error) {
	var parts projections.Partitions
	parts.Add(partition)
	p := b.o.New()
	if b.scatter.parts[partition].raw*bytesPerByte > int64(min(b.o.Memory, 2<<30)) {
		dir := b.newFile("fold")
		m = new(projections.MemoryFold)
		if err := m.BeginOnDisk(b.o.FS, dir, p, &parts, b.log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close(), b.o.FS.RemoveAll(dir)) }()
	} else if err := m.Begin(p, &parts, b.log); err != nil {
		return err
	}
	return b.foldInto(m, p, partition, t, rest, func() error {
		const often = 1 << 12
		n := uint64(0)
		err := b.scatter.each(partition, func(ev *events.Event, logTime events.Micros) error {
			if n++; n%often == 0 {
				b.o.Folded(often)
			}
			return m.Fold(ev, logTime)
		})
		b.o.Folded(n % often)
		return err
	})
}

// foldInto folds what fold gives to m, and writes the rows.
func (b *Builder) foldInto(
	m *projections.MemoryFold, p projections.Projection, partition uint8, t *tables, rest *runs, fold func() error,
) (err error) {
	if err := fold(); err != nil {
		return err
	}
	if at := b.ticked(); at > 0 {
		if err := m.Tick(at); err != nil {
			return err
		}
	}
	it := m.Rows()
	for err == nil && it.Next() {
		switch {
		case inPlace(partition, it.Key()):
			err = t.set(it.Key(), it.Value())
		case projections.PartitionOf(p, it.Key()) == projections.StoreWide: // the sequencer has it
		default:
			err = rest.set(it.Key(), it.Value())
		}
	}
	return errors.Join(err, it.Close())
}

// merge writes all rows that are not in place, and those of the store as a whole, among which those of a region may stand.
func (b *Builder) merge(ctx context.Context, late []*runs) ([]string, error) {
	var sorted []cursor
	all := int64(0)
	for _, r := range late {
		all += r.all
		for _, name := range r.names {
			f, err := b.openRun(ctx, name)
			if err != nil {
				return nil, err
			}
			sorted = append(sorted, f)
		}
		r.sort()
		sorted = append(sorted, &inMemory{of: r})
	}
	rows, err := b.storeRows(ctx)
	if err != nil {
		return nil, err
	}
	t := &tables{b: b, level: projections.LastLevel}
	merging := func(rows int64) error { return errors.Join(ctx.Err(), b.o.Merging(ctx, rows, all)) }
	err = merge(append(sorted, rows), t.set, merging)
	return t.names, errors.Join(err, t.close())
}

func (b *Builder) newFile(kind string) string {
	return b.o.FS.PathJoin(b.parts, fmt.Sprintf("%s-%06d", kind, b.files.Add(1)))
}

// Close removes all files but the store.
func (b *Builder) Close() error { return b.o.FS.RemoveAll(b.parts) }
