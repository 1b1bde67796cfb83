package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// Options are the options of a build.
type Options struct {
	// FS is the file system. Dir is the directory of the new store, which must not exist. Until the
	// Builder is closed, temporary files are in the directory Dir + ".parts".
	FS  store.FS
	Dir string
	// New returns a new instance of the projection. Several goroutines may call it at once. Each
	// partition gets its own instance.
	New func() projections.Projection
	// Partitions are the partitions to build; nil means all.
	Partitions *events.Partitions
	// Memory is about how much memory the build takes, in bytes. A partition whose rows do not fit
	// is folded on disk, which is slow. Default 512 MiB.
	Memory int
	// Workers is the greatest number of partitions that are folded at a time. Partitions that take
	// more than their share of the memory are folded alone. Default: one per core that the process
	// may use.
	Workers int
	// Key, if it is not empty, makes the build continue one with the same key that was interrupted
	// (see save.go). It must say what the store is made from: the fold with its settings and
	// partitions, and the epoch of the log. A build with a key cannot be handed over.
	Key string
	// Temporary is set for a store that is read once and then removed. Its tables are compressed
	// less, to save time.
	Temporary bool
	// AroundFold is called for every partition, from several goroutines. It must call fold once,
	// and may wait before and after that. Its error ends the build. If AroundFold is nil, the build
	// calls fold itself.
	AroundFold func(ctx context.Context, fold func() error) error
	// OnFolded is called, from several goroutines, with the number of events folded since its last
	// call. It may be nil.
	OnFolded func(events uint64)
	// Merging is called for every few thousand rows of the merge, as AroundFold is for every
	// partition. all is the number of rows of the whole merge. Merging must call merge, which
	// returns how many rows it has merged. It may be nil.
	Merging func(ctx context.Context, all int64, merge func() (rows int64, err error)) error
}

// Builder makes a store. The caller adds the envelopes of a log after [Builder.Cursor] and then
// calls Finish. The cursor is the start of the log unless the build continues another one. The
// caller must call Close in any case.
type Builder struct {
	options Options
	// projection is an instance that folds nothing. It gives the name, the routes of events and the
	// partitions of keys.
	projection projections.Projection
	// partitions are the partitions to build.
	partitions events.Partitions
	tempDir    string // the directory of temporary files
	// sequencer accepts and rejects events in the order of the log, as a live fold does, before
	// they are scattered.
	sequencer *store.Sequencer
	scatter   *scatterFile
	files     atomic.Int64 // numbers the temporary files
	// rows is the number of rows in finished tables. Several goroutines add to it.
	rows atomic.Int64
	// log is the id of the log that is read.
	log events.LogID
	// handover is set in the process that finishes a build which another process has begun. Its
	// Builder has no sequencer.
	handover *Handover
	// isSaved is set once the build has saved how far it is (see save.go). Once all events of a
	// build with a key were added, ranges are the ranges of partitions to fold, and folded has those
	// that an earlier process has saved.
	isSaved bool
	ranges  [][2]int
	folded  map[[2]int]savedRange
	// workerMemory is the limit of a partition that is folded beside others, and allMemory that of
	// one that is folded alone. folding is locked by the latter, and read-locked by the former.
	workerMemory, allMemory memoryLimit
	folding                 sync.RWMutex
	// sampleMemory is the memory in which samples are folded, reused by each.
	sampleMemory store.MemoryFold
}

// New begins a build, or continues an interrupted one that has the same key. It removes the
// temporary files of any other build in their directory. New fails if what was saved of the
// interrupted build is damaged. Once the caller has removed the directory, New begins again.
func New(o Options) (*Builder, error) {
	b := newBuilder(o)
	saved, err := b.readSavedBuild()
	if err != nil {
		return nil, err
	}
	if !b.isSaved {
		if err := o.FS.RemoveAll(b.tempDir); err != nil {
			return nil, err
		}
		if err := o.FS.MkdirAll(b.tempDir, 0o755); err != nil {
			return nil, err
		}
	}

	b.sequencer, err = store.NewSequencer(b.projection, o.Partitions, b.scatterEvent)
	if err != nil {
		return nil, err
	}
	if b.isSaved {
		if err := b.sequencer.Restore(saved.StoreRows, saved.LastTick); err != nil {
			return nil, err
		}
		b.log = b.sequencer.Cursor().Log
	}
	b.scatter, err = openScatterFile(o.FS, b.eventsFile(), b.options.Workers > 1, saved.EventBytes)
	return b, err
}

// newBuilder returns a Builder with the defaults of options filled in. It has no files yet.
func newBuilder(o Options) *Builder {
	o.Memory = cmp.Or(o.Memory, 512<<20)
	// GOMAXPROCS may be greater than the number of cores, and folds that share a core evict each
	// other's data from its cache.
	o.Workers = cmp.Or(o.Workers, min(runtime.GOMAXPROCS(0), runtime.NumCPU()))

	if o.AroundFold == nil {
		o.AroundFold = func(_ context.Context, fold func() error) error { return fold() }
	}
	if o.OnFolded == nil {
		o.OnFolded = func(uint64) {}
	}
	if o.Merging == nil {
		o.Merging = func(_ context.Context, _ int64, merge func() (int64, error)) error {
			_, err := merge()
			return err
		}
	}

	held := events.AllPartitions()
	if o.Partitions != nil {
		held = *o.Partitions
	}
	b := &Builder{options: o, projection: o.New(), partitions: held, tempDir: o.Dir + ".parts"}
	// A quarter of the memory is for the runs (see Finish).
	b.workerMemory.bytes = min(o.Memory/o.Workers/4*3, maxMemoryRows)
	b.allMemory.bytes = min(o.Memory/4*3, maxMemoryRows)
	return b
}

func (b *Builder) eventsFile() string { return b.options.FS.PathJoin(b.tempDir, "events") }

// scatterEvent adds an accepted event to each partition to build that it is delivered to. logTime
// is the log time after the event. The end of a backfill is delivered to every partition. An event
// that is delivered to no partition to build is dropped at once.
func (b *Builder) scatterEvent(ev *events.Event, logTime events.Micros) error {
	var to events.Partitions
	if ev.Kind == events.BackfillClosed {
		to = b.partitions
	} else {
		projections.RouteRows(b.projection, ev, &to)
		if to.Intersect(&b.partitions); to == (events.Partitions{}) {
			return nil
		}
	}
	return to.Each(func(partition uint8) error { return b.scatter.addEvent(scatteredEvent{ev, logTime, partition}) })
}

// Add adds envelopes. They must be consecutive in the log and follow the cursor, and the caller must
// not change them any more.
func (b *Builder) Add(envs []*events.Envelope) error {
	if len(envs) > 0 {
		b.log = envs[0].Cursor.Log
	}
	return b.sequencer.Fold(envs)
}

// Cursor returns the cursor after the last envelope that was added.
func (b *Builder) Cursor() events.Cursor { return b.sequencer.Cursor() }

// maxMemoryRows is how many bytes of rows a fold in memory may hold, however much memory there is:
// it could not address more.
const maxMemoryRows = 2 << 30

// ScatteredEvents returns the number of events to fold. An event that is delivered to several
// partitions counts once for each.
func (b *Builder) ScatteredEvents() (events int64) {
	_ = b.scatter.waitEncoded() // Finish will return the error, too
	for i := range b.scatter.parts {
		events += b.scatter.parts[i].eventCount
	}
	return events
}

// Rows returns the number of rows in the store, once [Builder.Finish] has returned.
func (b *Builder) Rows() int64 { return b.rows.Load() }

// Workers returns the greatest number of partitions that Finish will fold at a time.
func (b *Builder) Workers() int { return b.options.Workers }

// tasksPerWorker is how many ranges of partitions, and how many pieces of the merge, there are per
// worker. A worker that is done early takes another one.
const tasksPerWorker = 8

// Finish folds all events that were added and makes the store. The position of the store is that of
// [Builder.Cursor].
func (b *Builder) Finish(ctx context.Context) error {
	if b.options.Key != "" && !b.HasAllEvents() {
		if err := b.scatter.waitEncoded(); err != nil {
			return err
		}
		b.ranges = b.rangesToSave()
		if err := b.Save(); err != nil {
			return err
		}
	}
	if b.handover == nil {
		if err := errors.Join(b.scatter.finish(), b.writeStoreRows()); err != nil {
			return err
		}
	}

	// Fold the partitions.
	workers := b.Workers()
	ranges := b.ranges
	if ranges == nil {
		ranges = b.partitionRanges(tasksPerWorker * workers)
	}
	var mu sync.Mutex // guards tables and rest
	var tables []string
	var rest []*runSet
	group, folding := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, r := range ranges {
		group.Go(func() error {
			names, runs, err := b.foldOrLoadRange(func() (*tableWriter, *runSet, error) {
				return b.foldRange(folding, r[0], r[1], b.options.Memory/4/workers)
			}, r)
			mu.Lock()
			defer mu.Unlock()
			tables = append(tables, names...)
			rest = append(rest, runs)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("build %s: %w", b.projection.Name(), err)
	}

	// Merge the rows that are not in place, and make the store of both kinds of tables.
	merged, err := b.merge(ctx, rest, workers)
	if err != nil {
		return fmt.Errorf("build %s: %w", b.projection.Name(), err)
	}
	if err := store.CreateStore(ctx, b.options.FS, b.options.Dir, b.projection, tables, merged); err != nil {
		return err
	}
	if !b.isSaved {
		return nil
	}
	return b.finishSaved()
}

// partitionRanges divides the partitions into at most n ranges from <= partition < to, with about
// the same number of bytes of events each.
func (b *Builder) partitionRanges(n int) (ranges [][2]int) {
	all := b.scatter.rawBytes()

	// End the k-th range as soon as the first k ranges have k/n of the bytes.
	from, sum := 0, int64(0)
	for p := range events.NumPartitions {
		sum += b.scatter.parts[p].rawBytes
		if sum*int64(n) >= all*int64(len(ranges)+1) || p == events.NumPartitions-1 {
			ranges = append(ranges, [2]int{from, p + 1})
			from = p + 1
		}
	}
	return ranges
}

// foldRange folds the partitions from <= partition < to. It writes the rows that are in place into
// tables, and all others into sorted runs of about maxRunBytes. It returns the writer of the
// tables, which is closed, and the runs.
func (b *Builder) foldRange(ctx context.Context, from, to, maxRunBytes int) (t *tableWriter, rest *runSet, err error) {
	t = b.newTables(b)
	rest = &runSet{builder: b, maxBytes: maxRunBytes}
	var m store.MemoryFold // reused, because all partitions take about the same memory

	for p := from; p < to; p++ {
		if ctx.Err() != nil {
			return t, nil, errors.Join(ctx.Err(), t.close())
		}
		if !b.partitions.Has(uint8(p)) {
			continue
		}
		err := b.options.AroundFold(ctx, func() error { return b.foldPartition(&m, uint8(p), t, rest) })
		if err != nil {
			return t, nil, errors.Join(fmt.Errorf("partition %d: %w", p, err), t.close())
		}
	}

	err = errors.Join(rest.flush(), t.close())
	// Free the memory before the merge.
	rest.data = nil
	rest.rows = nil
	return t, rest, err
}

// memoryLimit is a limit of the memory that the rows of a partition may take.
type memoryLimit struct {
	bytes int
	// exceededBy is how many bytes of events a partition had whose rows took more, or 0 if there
	// was none. Partitions with at least as many bytes are not tried. If several workers exceed the
	// limit at the same time, any of them may be the one that counts; then a try is made in vain.
	exceededBy atomic.Int64
}

// allows reports whether the rows of a partition with so many bytes of events may be within the
// limit.
func (l *memoryLimit) allows(eventBytes int64) bool {
	by := l.exceededBy.Load()
	return by == 0 || eventBytes < by
}

// errTooLarge ends a fold whose rows take too much memory.
var errTooLarge = errors.New("build: the rows of a partition take too much memory")

// foldPartition folds one partition. How much memory its rows take is known only when they are
// there, because events may add rows or only raise counts. So the partition is first folded in the
// memory of a worker, then, if that was too little, in the memory of all workers, which wait, and
// at last on disk.
func (b *Builder) foldPartition(m *store.MemoryFold, partition uint8, t *tableWriter, rest *runSet) (err error) {
	eventBytes := b.scatter.parts[partition].rawBytes
	reported := uint64(0)
	if b.workerMemory.allows(eventBytes) {
		b.folding.RLock()
		err := b.foldInMemory(m, &b.workerMemory, partition, &reported, t, rest)
		b.folding.RUnlock()
		if !errors.Is(err, errTooLarge) {
			return err
		}
	}

	b.folding.Lock()
	defer b.folding.Unlock()
	defer func() { *m = store.MemoryFold{} }() // the other workers need the memory
	if b.allMemory.bytes > b.workerMemory.bytes && b.allMemory.allows(eventBytes) {
		err := b.foldInMemory(m, &b.allMemory, partition, &reported, t, rest)
		if !errors.Is(err, errTooLarge) {
			return err
		}
	}
	return b.foldOnDisk(partition, &reported, t, rest)
}

// foldInMemory folds one partition in the memory of m. It fails with errTooLarge if the rows take
// more than the limit.
func (b *Builder) foldInMemory(
	m *store.MemoryFold, limit *memoryLimit, partition uint8, reported *uint64, t *tableWriter, rest *runSet,
) error {
	var parts events.Partitions
	parts.Add(partition)
	p := b.options.New()
	if err := m.Begin(p, &parts, b.log); err != nil {
		return err
	}
	err := b.foldInto(m, p, partition, t, rest, func() error { return b.foldEvents(m, limit.bytes, partition, reported) })
	if errors.Is(err, errTooLarge) {
		limit.exceededBy.Store(b.scatter.parts[partition].rawBytes)
		*m = store.MemoryFold{}
	}
	return err
}

// foldOnDisk folds one partition on disk.
func (b *Builder) foldOnDisk(partition uint8, reported *uint64, t *tableWriter, rest *runSet) (err error) {
	var parts events.Partitions
	parts.Add(partition)
	p := b.options.New()
	dir := b.newFilePath("fold")
	var m store.MemoryFold
	if err := m.BeginOnDisk(b.options.FS, dir, p, &parts, b.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(), b.options.FS.RemoveAll(dir)) }()
	return b.foldInto(&m, p, partition, t, rest, func() error { return b.foldEvents(&m, math.MaxInt, partition, reported) })
}

// foldEvents folds the events of a partition until the rows take more than maxBytes of memory.
// reported is how many of these events OnFolded was already told of.
func (b *Builder) foldEvents(m *store.MemoryFold, maxBytes int, partition uint8, reported *uint64) error {
	const reportEvery = 1 << 12 // events
	n := uint64(0)
	err := b.scatter.eachEvent(partition, func(ev *events.Event, logTime events.Micros) error {
		n++
		if n == *reported+reportEvery {
			b.options.OnFolded(reportEvery)
			*reported = n
		}
		if m.Memory() > maxBytes {
			return errTooLarge
		}
		return m.Fold(ev, logTime)
	})
	if err == nil {
		b.options.OnFolded(n - *reported)
	}
	return err
}

// foldInto calls fold, which folds events into m, and then writes the rows of m.
func (b *Builder) foldInto(
	m *store.MemoryFold, p projections.Projection, partition uint8, t *tableWriter, rest *runSet, fold func() error,
) (err error) {
	if err := fold(); err != nil {
		return err
	}

	// Log time also passes for a partition that gets no event. So after its own events, fold the
	// time of the last event of the log.
	if at := b.lastLogTime(); at > 0 {
		if err := m.Tick(at); err != nil {
			return err
		}
	}

	it := m.Rows()
	for err == nil && it.Next() {
		switch {
		case isInPlace(partition, it.Key()):
			err = t.set(it.Key(), it.Value())
		case projections.PartitionOf(p, it.Key()) == projections.StoreWide:
			// The sequencer has the rows of the store as a whole, and writes them once (see
			// writeStoreRows).
		default:
			err = rest.set(it.Key(), it.Value())
		}
	}
	return errors.Join(err, it.Close())
}

// newTables returns a writer of tables of the store. The files belong to the Builder owner, which
// is not b for the rows of a sample.
func (b *Builder) newTables(owner *Builder) *tableWriter {
	level := store.LastLevel
	if b.options.Temporary {
		level = store.Temporary
	}
	return &tableWriter{builder: owner, level: level}
}

// merge writes the rows that are not in place into tables, in pieces of about as many rows each. It
// returns the files of the tables. The rows of the store as a whole are merged with them, because
// rows of a region may sort between them.
func (b *Builder) merge(ctx context.Context, rest []*runSet, workers int) (names []string, err error) {
	all := runSet{names: []string{b.storeRowsFile()}}
	for _, r := range rest {
		all.names = append(all.names, r.names...)
		all.samples = append(all.samples, r.samples...)
		all.rowCount += r.rowCount
	}

	var mu sync.Mutex // guards names
	group, merging := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, piece := range all.pieces(tasksPerWorker * workers) {
		group.Go(func() error {
			t := b.newTables(b)
			err := b.mergePiece(merging, &all, piece, t)
			mu.Lock()
			defer mu.Unlock()
			names = append(names, t.names...)
			return errors.Join(err, t.close())
		})
	}
	return names, group.Wait()
}

// mergePiece merges the rows of a piece from all files of runs and writes them to t.
func (b *Builder) mergePiece(ctx context.Context, of *runSet, p keyRange, t *tableWriter) error {
	it, err := store.MergeTables(ctx, b.options.FS, of.names, b.projection, p.lower, p.upper)
	if err != nil {
		return err
	}

	// mergeSome merges up to 4096 rows, so that Merging can wait between two calls.
	more := it.First()
	mergeSome := func() (rows int64, err error) {
		for ; more && rows < 4096; rows++ {
			value, err := it.ValueAndErr()
			if err != nil {
				return rows, err
			}
			if err := t.set(it.Key(), value); err != nil {
				return rows, err
			}
			more = it.Next()
		}
		return rows, nil
	}
	for more && err == nil {
		err = errors.Join(ctx.Err(), b.options.Merging(ctx, of.rowCount, mergeSome))
	}
	return errors.Join(err, it.Close())
}

// newFilePath returns the name of a new temporary file.
func (b *Builder) newFilePath(kind string) string {
	return b.options.FS.PathJoin(b.tempDir, fmt.Sprintf("%s-%06d", kind, b.files.Add(1)))
}

// Close removes all temporary files. The store stays, and so do the files by which a saved build
// continues.
func (b *Builder) Close() error {
	// Close the file before it is removed, because the disk keeps the space of an open file.
	err := b.scatter.close()
	if b.isSaved {
		return err
	}
	return errors.Join(err, b.options.FS.RemoveAll(b.tempDir))
}
