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

// Options are the options of a build, which makes a new store from a log (see [Builder]).
type Options struct {
	// FS is the file system. Dir is the directory of the new store, which must not exist when
	// Finish is called. The temporary files are in the directory Dir + ".parts". Close removes this
	// directory, unless the build was saved (see Key).
	FS  store.FS
	Dir string
	// New returns a new instance of the projection. The build calls it from several goroutines at
	// once, because it folds each partition with an instance of its own.
	New func() projections.Projection
	// Partitions are the partitions to build; nil means all.
	Partitions *events.Partitions
	// Memory is about how much memory the build takes, in bytes. If the rows of a partition take
	// more than three quarters of it, or more than 2 GiB, the build folds the partition on disk,
	// which is slow. Default: 512 MiB.
	Memory int
	// Workers is the greatest number of partitions that the build folds at the same time, and of
	// pieces that it merges at the same time. If the rows of a partition take more memory than the
	// share of one worker, the build folds this partition while no other one is folded. Default:
	// one per core that the process may use.
	Workers int
	// Key, if it is not empty, makes New continue an interrupted build of the same Dir, if that
	// build was saved and had the same key (see save.go). So the key must name everything that the
	// store is made from: the fold with its settings and partitions, and the epoch of the log. The
	// temporary files of a saved build stay when the Builder is closed. After Finish, a file that
	// says that the store is complete stays (see IsBuilt), and the caller removes it. The caller
	// must not hand over a build with a key, because a Handover has no key: the other process would
	// save nothing. HandOver does not check this.
	Key string
	// Temporary is set for a store that is read once and then removed. To save time, its tables
	// are compressed less and are not synced.
	Temporary bool
	// AroundFold is called once for every partition to fold, from several goroutines at once. A
	// partition that an earlier process has folded and saved is not folded. AroundFold must call
	// fold once and return the error of fold. It may wait before and after the call, for example to
	// slow down the build. Any error that it returns ends the build. If AroundFold is nil, the
	// build calls fold itself.
	AroundFold func(ctx context.Context, fold func() error) error
	// OnFolded is called, from several goroutines at once, with a number of events that were folded
	// and that no other call has counted; the number may be 0. When Finish has succeeded, the
	// numbers of all calls add up to ScatteredEvents. OnFolded may be nil.
	OnFolded func(events uint64)
	// Merging is called, from several goroutines at once, for every few thousand rows of the merge.
	// It must call merge once, which merges these rows and returns their number, and it must return
	// the error of merge. It may wait before and after the call. Any error that it returns ends the
	// build. all is the number of rows of the whole merge, without those of the store as a whole,
	// which are merged too; so the sum of all rows may be a little larger. Merging may be nil.
	Merging func(ctx context.Context, all int64, merge func() (rows int64, err error)) error
}

// Builder makes a store from a log. The caller adds all envelopes of the log that follow
// [Builder.Cursor], and then calls Finish. The cursor of a new Builder is the start of the log,
// unless New has continued an interrupted build. If [Builder.HasAllEvents] returns true, the caller
// adds nothing. Instead of Finish, the caller may call HandOver, so that another process finishes
// the build. The caller must call Close in any case. Only one goroutine may use a Builder.
type Builder struct {
	options Options
	// projection is an instance that folds nothing in a partition. The Builder asks it for its name
	// and for the partitions whose rows an event may change. The sequencer and the writers of
	// tables use it, too.
	projection projections.Projection
	// partitions are the partitions to build.
	partitions events.Partitions
	tempDir    string // the directory of temporary files
	// sequencer reads the log in order and decides, as a live fold does, which events count. It
	// calls scatterEvent with each of these. It also has the rows of the store as a whole.
	sequencer *store.Sequencer
	// scatter has the events by partition.
	scatter *scatterFile
	// files is the number of the latest temporary file (see newFilePath).
	files atomic.Int64
	// rows is the number of rows in finished tables of the store. Several goroutines add to it.
	rows atomic.Int64
	// log is the id of the log from which the envelopes come.
	log events.LogID
	// handover is set if another process has begun the build and this process finishes it. Then
	// sequencer is nil.
	handover *Handover
	// isSaved is set once the build has saved how far it is (see save.go), in this process or in an
	// earlier one.
	isSaved bool
	// ranges are the ranges from <= partition < to that Finish folds. They are set for a build with
	// a key, once all events were added, so that a continued build has the same ranges.
	ranges [][2]int
	// folded has those of the ranges that an earlier process has folded and saved.
	folded map[[2]int]savedRange
	// workerMemory limits the rows of a partition that is folded while other workers fold others.
	// allMemory limits the rows of a partition that is folded while all other workers wait.
	workerMemory, allMemory memoryLimit
	// foldLock makes them wait: a worker holds it for reading while workerMemory applies, and for
	// writing while it folds a partition alone, in memory or on disk.
	foldLock sync.RWMutex
	// sampleMemory is the memory in which a [Sample] folds events. The next sample reuses it.
	sampleMemory store.MemoryFold
}

// New begins a build, or continues a saved build of the same Dir with the same key. If it begins a
// build, it first removes the temporary files that any earlier build of this Dir has left. If the
// options have a key and what an earlier build has saved is damaged or has another format, New
// fails and removes nothing. The caller can then remove the directory Dir + ".parts" and call New
// again, which begins a build.
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

// newBuilder returns a Builder with these options, and with defaults where an option is not set.
// The Builder has no sequencer, no scatter and no files yet.
func newBuilder(o Options) *Builder {
	o.Memory = cmp.Or(o.Memory, 512<<20)
	// GOMAXPROCS may be set to more than the number of cores. More workers than cores would make
	// the build slower, because folds that share a core evict each other's data from its cache.
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
	// The folds get three quarters of the memory. Finish gives the last quarter to the rows that
	// runSets collect for sorted runs.
	b.workerMemory.bytes = min(o.Memory/o.Workers/4*3, maxMemoryRows)
	b.allMemory.bytes = min(o.Memory/4*3, maxMemoryRows)
	return b
}

// eventsFile returns the name of the file of scattered events.
func (b *Builder) eventsFile() string { return b.options.FS.PathJoin(b.tempDir, "events") }

// scatterEvent adds an event that counts to the events of each partition whose rows it may change,
// if this partition is to be built. The sequencer calls it. logTime is the log time at the end of
// the event's envelope. An event that closes backfills goes to every partition to build, because
// every fold must know which sources are closed. An event for other partitions only is dropped.
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

// Add adds envelopes. They must be consecutive in the log, and the first one must follow the
// cursor. The caller must not change them afterwards, because another goroutine may encode their
// events after Add has returned. A Builder that [TakeOver] has returned takes no envelopes.
func (b *Builder) Add(envs []*events.Envelope) error {
	if len(envs) > 0 {
		b.log = envs[0].Cursor.Log
	}
	return b.sequencer.Fold(envs)
}

// Cursor returns the cursor after the last envelope that was added. A Builder that [TakeOver] has
// returned has no cursor, so Cursor must not be called.
func (b *Builder) Cursor() events.Cursor { return b.sequencer.Cursor() }

// maxMemoryRows is how many bytes the rows of a fold in memory may take, however much memory there
// is. Above 3 GiB of keys and values, a [store.MemoryFold] fails with an error that ends the build,
// because its offsets have 32 bits. The limit is lower, because foldEvents checks it only before
// each event, and an event may add many rows.
const maxMemoryRows = 2 << 30

// ScatteredEvents returns how many of the events that were added so far Finish has to fold. An
// event that goes to several partitions counts once for each.
func (b *Builder) ScatteredEvents() (events int64) {
	_ = b.scatter.waitEncoded() // Finish and HandOver return the error, too
	for i := range b.scatter.parts {
		events += b.scatter.parts[i].eventCount
	}
	return events
}

// Rows returns the number of rows in the store, once [Builder.Finish] has returned without an
// error.
func (b *Builder) Rows() int64 { return b.rows.Load() }

// Workers returns the greatest number of partitions that Finish will fold at a time.
func (b *Builder) Workers() int { return b.options.Workers }

// tasksPerWorker is about how many ranges of partitions, and at most how many pieces of the merge,
// there are per worker. A large saved build has more ranges (see savedRangeBytes). Some ranges and
// pieces take longer than others. With several per worker, all workers end at about the same time,
// because a worker that is done early takes the next one.
const tasksPerWorker = 8

// Finish folds all events that were added and makes the store. The position of the store is the
// cursor after the last envelope that was added. The caller calls Finish once, after all calls of
// Add, or on a Builder that [TakeOver] has returned. If Finish fails, the caller must not use what
// is in the directory of the store.
func (b *Builder) Finish(ctx context.Context) error {
	// Record that all events were added, so that a build that continues reads no log.
	if b.options.Key != "" && !b.HasAllEvents() {
		if err := b.scatter.waitEncoded(); err != nil {
			return err
		}
		b.ranges = b.rangesToSave()
		if err := b.Save(); err != nil {
			return err
		}
	}
	// For a build that was taken over, HandOver has done this in the other process.
	if b.handover == nil {
		if err := errors.Join(b.scatter.finish(), b.writeStoreRows()); err != nil {
			return err
		}
	}

	// Fold the partitions. tables gets the files of the rows that are in place (see isInPlace), and
	// rest gets the runs of all other rows.
	workers := b.Workers()
	ranges := b.ranges
	if ranges == nil {
		ranges = b.partitionRanges(tasksPerWorker * workers)
	}
	var mu sync.Mutex // guards tables and rest
	var tables []string
	var rest []*runSet
	group, foldContext := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, r := range ranges {
		group.Go(func() error {
			names, runs, err := b.foldOrLoadRange(func() (*tableWriter, *runSet, error) {
				return b.foldRange(foldContext, r[0], r[1], b.options.Memory/4/workers)
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

	// Merge the rows that are not in place. Then make the store from both kinds of tables. The
	// merged ones must come last, because the position is among them (see CreateStore).
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

// partitionRanges divides all partitions into ranges from <= partition < to, with about the same
// number of bytes of events each. The ranges also contain the partitions that are not to be built,
// which have no events. There are at most n ranges, or n+1 if the last partition has no events. If
// there are no events at all, each partition is a range of its own.
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

// foldRange folds the partitions to build with from <= partition < to. It writes the rows that are
// in place into tables, and all others into sorted runs. Each run has the rows that were collected
// in about maxRunBytes of memory. foldRange returns the writer of the tables, which is closed even
// if there is an error, and the runs.
func (b *Builder) foldRange(ctx context.Context, from, to, maxRunBytes int) (t *tableWriter, rest *runSet, err error) {
	t = b.newTables(b)
	rest = &runSet{builder: b, maxBytes: maxRunBytes}
	// All partitions reuse m. They take about the same memory, so little of it stays unused.
	var m store.MemoryFold

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
	// The caller keeps rest until the merge, which needs only the files. So free its memory now.
	rest.data = nil
	rest.rows = nil
	return t, rest, err
}

// memoryLimit is a limit of the memory that the rows of one partition may take. It remembers which
// partitions have exceeded it, so that foldPartition does not try larger ones in vain.
type memoryLimit struct {
	// bytes is the limit.
	bytes int
	// tooManyEventBytes is how many bytes of events the partition had whose rows last exceeded the
	// limit, or 0 if no partition has exceeded it. A partition with as many bytes of events or more
	// is not tried. If the partitions of several workers exceed the limit at about the same time,
	// the last one to store its number may not be the smallest. Then foldPartition may later try a
	// partition that exceeds the limit, which costs time but does no harm.
	tooManyEventBytes atomic.Int64
}

// allows reports whether foldPartition should try to fold a partition with so many bytes of events
// within the limit. Its rows may still exceed the limit.
func (l *memoryLimit) allows(eventBytes int64) bool {
	tooMany := l.tooManyEventBytes.Load()
	return tooMany == 0 || eventBytes < tooMany
}

// errTooLarge ends a fold whose rows take too much memory.
var errTooLarge = errors.New("build: the rows of a partition take too much memory")

// foldPartition folds one partition and writes its rows to t and rest. Nobody knows how much memory
// the rows will take before they are there, because some events add rows and others only raise
// counts. So foldPartition first folds the partition within the limit of one worker. If the rows
// exceed this limit, it waits until no other worker folds, makes the others wait, and begins again
// within the limit for all workers together. If the rows exceed this limit too, it begins again on
// disk, while the others still wait. It skips a try in memory that memoryLimit.allows advises
// against, and the second one if its limit is not higher than the first. All partitions of a range
// use the same m.
func (b *Builder) foldPartition(m *store.MemoryFold, partition uint8, t *tableWriter, rest *runSet) (err error) {
	eventBytes := b.scatter.parts[partition].rawBytes
	reported := uint64(0)
	if b.workerMemory.allows(eventBytes) {
		b.foldLock.RLock()
		err := b.foldInMemory(m, &b.workerMemory, partition, &reported, t, rest)
		b.foldLock.RUnlock()
		if !errors.Is(err, errTooLarge) {
			return err
		}
	}

	b.foldLock.Lock()
	defer b.foldLock.Unlock()
	defer func() { *m = store.MemoryFold{} }() // the other workers need the memory
	if b.allMemory.bytes > b.workerMemory.bytes && b.allMemory.allows(eventBytes) {
		err := b.foldInMemory(m, &b.allMemory, partition, &reported, t, rest)
		if !errors.Is(err, errTooLarge) {
			return err
		}
	}
	return b.foldOnDisk(partition, &reported, t, rest)
}

// foldInMemory folds one partition in the memory of m and writes its rows to t and rest. If the
// rows exceed the limit, it writes no rows, frees the memory of m, and fails with errTooLarge.
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
		limit.tooManyEventBytes.Store(b.scatter.parts[partition].rawBytes)
		*m = store.MemoryFold{}
	}
	return err
}

// foldOnDisk folds one partition in a temporary store on disk, writes its rows to t and rest, and
// removes the temporary store.
func (b *Builder) foldOnDisk(partition uint8, reported *uint64, t *tableWriter, rest *runSet) (err error) {
	var parts events.Partitions
	parts.Add(partition)
	p := b.options.New()
	dir := b.newFilePath("fold")
	// A process that was killed may have left this directory (see newFilePath). The fold would take
	// the rows there for its own.
	if err := b.options.FS.RemoveAll(dir); err != nil {
		return err
	}

	var m store.MemoryFold
	if err := m.BeginOnDisk(b.options.FS, dir, p, &parts, b.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(), b.options.FS.RemoveAll(dir)) }()
	return b.foldInto(&m, p, partition, t, rest, func() error { return b.foldEvents(&m, math.MaxInt, partition, reported) })
}

// foldEvents folds the events of a partition into m. Before each event it checks how much memory
// the rows take, and fails with errTooLarge if they take more than maxBytes. reported is how many
// events of this partition the calls of OnFolded have counted so far, in this try and in earlier
// ones. A new try does not count these events again.
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

// foldInto calls fold, which folds the events of a partition into m. Then it writes the rows of m
// that are in place to t, and the rest to rest. p is the projection with which m has begun.
func (b *Builder) foldInto(
	m *store.MemoryFold, p projections.Projection, partition uint8, t *tableWriter, rest *runSet, fold func() error,
) (err error) {
	if err := fold(); err != nil {
		return err
	}

	// Log time passes for a partition even when an event goes to other partitions only, and rows
	// may depend on the log time. So after the events of this partition, tell the fold the log time
	// of the last event of the log that the projection reads.
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
			// The folds of several partitions may write the same row of the store as a whole. Drop
			// it here: the sequencer has this row too, and writeStoreRows writes it once.
		default:
			err = rest.set(it.Key(), it.Value())
		}
	}
	return errors.Join(err, it.Close())
}

// newTables returns a writer of tables, compressed as those of the store of b. owner is the Builder
// in whose file system and directory the writer creates the files, and whose rows it counts. owner
// is b, except for the tables of a [Sample], which are in memory.
func (b *Builder) newTables(owner *Builder) *tableWriter {
	level := store.LastLevel
	if b.options.Temporary {
		level = store.Temporary
	}
	return &tableWriter{builder: owner, level: level}
}

// merge writes the rows of all runs into tables, and returns the files of the tables. It divides
// the key space into pieces with about the same number of rows each, which several workers merge at
// the same time. merge also merges the rows of the store as a whole into these tables. They cannot
// have tables of their own in the same set (see CreateStore), because rows of a region may sort
// between them.
func (b *Builder) merge(ctx context.Context, rest []*runSet, workers int) (names []string, err error) {
	all := runSet{names: []string{b.storeRowsFile()}}
	for _, r := range rest {
		all.names = append(all.names, r.names...)
		all.samples = append(all.samples, r.samples...)
		all.rowCount += r.rowCount
	}

	var mu sync.Mutex // guards names
	group, mergeContext := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, piece := range all.pieces(tasksPerWorker * workers) {
		group.Go(func() error {
			t := b.newTables(b)
			err := b.mergePiece(mergeContext, &all, piece, t)
			mu.Lock()
			defer mu.Unlock()
			names = append(names, t.names...)
			return errors.Join(err, t.close())
		})
	}
	return names, group.Wait()
}

// mergePiece reads the rows with keys in piece from all files of runs, in the order of their keys,
// and writes them to t. The caller closes t.
func (b *Builder) mergePiece(ctx context.Context, runs *runSet, piece keyRange, t *tableWriter) error {
	it, err := store.MergeTables(ctx, b.options.FS, runs.names, b.projection, piece.lower, piece.upper)
	if err != nil {
		return err
	}

	// mergeSome merges at most 4096 rows. So Merging is called often enough to report the progress
	// and to slow down the merge. If First or Next fails, more is false, and it.Close returns the
	// error.
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
		err = errors.Join(ctx.Err(), b.options.Merging(ctx, runs.rowCount, mergeSome))
	}
	return errors.Join(err, it.Close())
}

// newFilePath returns the path of a new temporary file or directory. Its name begins with kind,
// which says what it is for, and ends with a number. In one process no number repeats. A build that
// continues may use numbers again that belong to files which an earlier process made but did not
// save.
func (b *Builder) newFilePath(kind string) string {
	return b.options.FS.PathJoin(b.tempDir, fmt.Sprintf("%s-%06d", kind, b.files.Add(1)))
}

// Close closes the file of events and removes all temporary files. If the build was saved, Close
// leaves the temporary files, so that a build with the same key can continue. Close does not touch
// the store.
func (b *Builder) Close() error {
	// Close the file before RemoveAll, because the file system frees the space of a removed file
	// only when the file is closed.
	err := b.scatter.close()
	if b.isSaved {
		return err
	}
	return errors.Join(err, b.options.FS.RemoveAll(b.tempDir))
}
