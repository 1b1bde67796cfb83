package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// errIncompatibleRows means that two sets of rows cannot be in one store, because they are not
// folds of the same log up to the same position, or because their partitions overlap or leave gaps.
var errIncompatibleRows = errors.New("store: the added partitions do not go with the store")

// ResizeCopy changes which partitions a copy of a store holds. The copy is in dir, must have been
// made by [Store.Checkpoint], and must not be open. ResizeCopy removes the rows of partitions that
// are not in to. It adds the rows of the stores in the directories added, each of which holds some
// of the partitions that the copy lacks. Together they must hold each of the missing partitions
// exactly once, folded to the position of the copy. If the position that an added store records is
// an earlier one, the caller must know that the log has nothing for the store in between. By the
// law of partitions (I13) the result has exactly the rows of a fold for to.
//
// ResizeCopy fails if the rows of the store as a whole, which are the same for every set of
// partitions, differ between the stores. The copy is unusable after an error. ResizeCopy must never
// be used on a live store: ingested rows are on disk at once, before older rows that are still in
// memory, so a crash would leave a store that is at no position of the log (I3).
func ResizeCopy(ctx context.Context, fs FS, dir string, p projections.Projection, to events.Partitions, added ...string) (err error) {
	defer recoverFatal(&err)
	r := &copyResizer{ctx: ctx, fs: fs, projection: p, scratchDir: dir + ".tables"}
	if err := errors.Join(fs.RemoveAll(r.scratchDir), fs.MkdirAll(r.scratchDir, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.RemoveAll(r.scratchDir)) }()

	o := shortLivedOptions(fs, p)
	o.ErrorIfNotExists = true
	if r.db, err = openShortLived(dir, o); err != nil {
		return fmt.Errorf("open %s of %s: %w", dir, p.Name(), err)
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()

	from, err := r.readHeldPartitions(r.db)
	if err != nil {
		return err
	}
	r.dropped = from.Without(&to)
	r.missing = to.Without(&from)

	// Drop first, so that the walks over regions and months do not read the added rows, too.
	if err := r.dropPartitions(); err != nil {
		return err
	}
	for _, dir := range added {
		if err := r.addPartitions(dir); err != nil {
			return err
		}
	}
	if n := r.missing.Len(); n > 0 {
		return fmt.Errorf("%w: %d partitions are missing", errIncompatibleRows, n)
	}

	// The fingerprint names the partitions, so it is written last, when the copy has their rows.
	t := r.newTables(FirstLevel)
	return r.ingest(t, t.write(func(w *sstable.Writer) error {
		return w.Set(fingerprintKey, projections.FingerprintOfPartitions(p, &to).Encode())
	}))
}

// openForReading opens the Pebble files of a store that no process has open.
func openForReading(fs FS, dir string, p projections.Projection) (*pebble.DB, error) {
	o := shortLivedOptions(fs, p)
	o.ErrorIfNotExists = true
	o.ReadOnly = true
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", dir, p.Name(), err)
	}
	return db, nil
}

// copyResizer changes one copy of a store. It writes all changes into tables and ingests these. So
// no change is ever in memory only, and an error of the disk is returned by the call that caused it
// and not by a later flush. ExportRows uses a copyResizer only to read, without scratchDir, and
// ImportRows only to write tables, without db.
type copyResizer struct {
	ctx        context.Context //nolint:containedctx // the context of the one call that the copyResizer lives for
	fs         FS
	db         *pebble.DB
	projection projections.Projection
	// scratchDir is the directory of the tables until they are ingested. tableCount is the number
	// of tables so far, from which their names are made.
	scratchDir string
	tableCount int
	// dropped has the partitions that the copy holds and is to lose. missing has those that it is
	// to hold and that were not added yet.
	dropped, missing events.Partitions
}

// tableSet writes rows or deletions into one table after the other. The callers of write must pass
// them in the order of their keys.
type tableSet struct {
	resizer *copyResizer
	level   TableLevel
	writer  *sstable.Writer // nil if no table is being written
	names   []string
}

// newTableBytes is the size in bytes from which a table is finished.
const newTableBytes = 32 << 20

func (r *copyResizer) newTables(level TableLevel) *tableSet {
	return &tableSet{resizer: r, level: level}
}

// write calls do with the writer of the current table. It creates the table first if there is none,
// and finishes it if it has become large enough.
func (t *tableSet) write(do func(w *sstable.Writer) error) (err error) {
	if t.writer == nil {
		name := t.resizer.fs.PathJoin(t.resizer.scratchDir, fmt.Sprintf("%06d", t.resizer.tableCount))
		if t.writer, err = CreateTable(t.resizer.fs, name, t.resizer.projection, t.level); err != nil {
			return err
		}
		t.resizer.tableCount++
		t.names = append(t.names, name)
	}

	if err := do(t.writer); err != nil {
		return err
	}
	if t.writer.Raw().EstimatedSize() < newTableBytes {
		return nil
	}
	return t.finishTable()
}

// finishTable closes the current table, and then also returns the error of the context. Without a
// current table it returns nil.
func (t *tableSet) finishTable() error {
	if t.writer == nil {
		return nil
	}
	err := t.writer.Close()
	t.writer = nil
	return errors.Join(err, t.resizer.ctx.Err())
}

// ingest adds the tables to the copy. err is the error of writing them: if it is not nil, ingest
// closes the current table, adds nothing, and returns the error.
func (r *copyResizer) ingest(t *tableSet, err error) error {
	if err = errors.Join(err, t.finishTable(), r.ctx.Err()); err != nil || len(t.names) == 0 {
		return err
	}
	return r.db.Ingest(r.ctx, t.names)
}

// readHeldPartitions returns the partitions that a store holds. It fails with
// [projections.ErrFingerprint] if the store was built by another fold or with other settings.
func (r *copyResizer) readHeldPartitions(db *pebble.DB) (held events.Partitions, err error) {
	row, err := readRow(db, fingerprintKey)
	if err != nil {
		return held, err
	}
	var built projections.Fingerprint
	if err := json.Unmarshal(row, &built); err != nil {
		return held, fmt.Errorf("%w: fingerprint: %w", projections.ErrCorrupt, err)
	}
	parts, err := projections.ParseHeld(built.Partitions)
	if err != nil {
		return held, err
	}

	if now := projections.FingerprintOfPartitions(r.projection, parts); !bytes.Equal(row, now.Encode()) {
		return held, fmt.Errorf("%w: %s", projections.ErrFingerprint, built.Differences(now))
	}
	holding := projections.Holding{Projection: r.projection, Held: parts}
	return holding.Partitions(), nil
}

// dropPartitions removes the rows of the dropped partitions.
func (r *copyResizer) dropPartitions() error {
	if r.dropped.Len() == 0 {
		return nil
	}

	// Rows in the shards of their home need one range deletion per shard and range of tags.
	t := r.newTables(FirstLevel)
	err := r.dropped.Each(func(partition uint8) error {
		return errors.Join(r.dropRowsInShards(t, partition), t.finishTable())
	})
	if err := r.ingest(t, err); err != nil {
		return err
	}

	// The others are mixed with rows of other homes, so they must be found. Each tag is ingested on
	// its own, because each walk over the rows starts at the first shard again, and the tables of a
	// set must be in the order of their keys.
	for _, tag := range r.regionTags() {
		t := r.newTables(FirstLevel)
		if err := r.ingest(t, r.dropRegionRows(t, tag)); err != nil {
			return err
		}
	}
	for _, tag := range r.datedTags() {
		t := r.newTables(FirstLevel)
		if err := r.ingest(t, r.dropDatedRows(t, tag)); err != nil {
			return err
		}
	}
	return nil
}

// regionTags returns the tags of the rows of regions (see [projections.Regional]).
func (r *copyResizer) regionTags() []projections.Tag {
	if regional, ok := r.projection.(projections.Regional); ok {
		return regional.Regions()
	}
	return nil
}

// datedTags returns the tags of the rows whose keys begin with a month (see
// [projections.MonthKeyed]).
func (r *copyResizer) datedTags() []projections.Tag {
	if dated, ok := r.projection.(projections.MonthKeyed); ok {
		return dated.MonthTags()
	}
	return nil
}

// shardRange returns the first shard of a partition, and the first shard of the next partition.
func shardRange(partition uint8) (first, end uint16) {
	first = uint16(projections.FirstShard(partition))
	return first, first + projections.ShardsPerPartition
}

// dropRowsInShards deletes the rows of a partition whose keys begin with the shard of their home.
// It leaves out the tags of regions, whose keys may begin with the shard of another id, and the
// tags of dated rows, whose keys begin with a month, which may be the same number as a shard.
func (r *copyResizer) dropRowsInShards(t *tableSet, partition uint8) error {
	others := slices.Concat(r.regionTags(), r.datedTags())
	slices.Sort(others)
	return t.write(func(w *sstable.Writer) (err error) {
		for shard, end := shardRange(partition); shard < end; shard++ {
			// Delete the ranges between the tags that are left out.
			lower := projections.AppendPrefix(nil, events.Shard(shard), 0)
			for _, tag := range others {
				upper := projections.AppendPrefix(nil, events.Shard(shard), tag)
				if bytes.Compare(lower, upper) < 0 {
					err = errors.Join(err, w.DeleteRange(lower, upper))
				}
				lower = projections.PrefixEnd(upper)
			}
			err = errors.Join(err, w.DeleteRange(lower, projections.AppendPrefix(nil, events.Shard(shard+1), 0)))
		}
		return err
	})
}

// eachRowOfTag calls do with the key of every row of a tag, in the order of the keys. do returns
// the key from which to continue, or nil to continue with the next row.
func (r *copyResizer) eachRowOfTag(tag projections.Tag, do func(key []byte) (next []byte, err error)) (err error) {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()

	var next []byte
	for ok := it.SeekGE(projections.AppendPrefix(nil, 0, tag)); ok && err == nil; {
		// Each shard has rows of many tags. Seek from shard to shard, so that the other tags are not
		// read.
		key := it.Key()
		if len(key) < projections.PrefixLen {
			return projections.RowError("key", key)
		}

		shard := binary.BigEndian.Uint16(key)
		switch rowTag := projections.Tag(key[2]); {
		case rowTag < tag:
			next = projections.AppendPrefix(nil, events.Shard(shard), tag)
		case rowTag == tag:
			if next, err = do(key); err != nil {
				return err
			}
		case shard == uint16(projections.StoreShard): // the last shard
			return nil
		default:
			next = projections.AppendPrefix(nil, events.Shard(shard+1), tag)
		}

		if next == nil {
			ok = it.Next()
		} else {
			ok = it.SeekGE(next)
		}
	}
	return it.Error()
}

// dropRegionRows deletes the region rows of a tag whose homes are dropped. Rows of other homes are
// between them, so each needs a deletion of its own.
func (r *copyResizer) dropRegionRows(t *tableSet, tag projections.Tag) error {
	return r.eachRowOfTag(tag, func(key []byte) ([]byte, error) {
		if p := projections.PartitionOf(r.projection, key); p == projections.StoreWide || !r.dropped.Has(uint8(p)) {
			return nil, nil
		}
		return nil, t.write(func(w *sstable.Writer) error { return w.Delete(key) })
	})
}

// dropDatedRows deletes the dated rows of a tag whose homes are dropped. The rows of one month and
// one partition are neighbors, so each month needs one range deletion per partition.
func (r *copyResizer) dropDatedRows(t *tableSet, tag projections.Tag) error {
	return r.eachRowOfTag(tag, func(key []byte) ([]byte, error) {
		month := bytes.Clone(key[:projections.PrefixLen])
		return projections.PrefixEnd(month), r.dropped.Each(func(partition uint8) error {
			first, end := shardRange(partition)
			lower := binary.BigEndian.AppendUint16(slices.Clip(month), first)
			upper := binary.BigEndian.AppendUint16(slices.Clip(month), end)
			return t.write(func(w *sstable.Writer) error { return w.DeleteRange(lower, upper) })
		})
	})
}

// addPartitions adds the rows of the store in dir, which must hold missing partitions only.
func (r *copyResizer) addPartitions(dir string) (err error) {
	source, err := openForReading(r.fs, dir, r.projection)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()

	held, err := r.readHeldPartitions(source)
	if err != nil {
		return err
	}
	if unwanted := held.Without(&r.missing); unwanted.Len() > 0 {
		return fmt.Errorf("%w: %d partitions are there already, or not wanted", errIncompatibleRows, unwanted.Len())
	}
	if err := r.checkPosition(source); err != nil {
		return err
	}
	if err := r.checkStoreRows(source); err != nil {
		return err
	}

	r.missing = r.missing.Without(&held)
	t := r.newTables(LastLevel)
	return r.ingest(t, r.copyRows(t, source))
}

// copyRows copies the rows of all partitions of a store, but not the rows of the store as a whole:
// the copy has these already.
func (r *copyResizer) copyRows(t *tableSet, source *pebble.DB) error {
	it, err := source.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if projections.PartitionOf(r.projection, it.Key()) == projections.StoreWide {
			continue
		}
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			err = t.write(func(w *sstable.Writer) error { return w.Set(it.Key(), value) })
		}
	}
	return errors.Join(err, it.Close())
}

// checkPosition fails if an added store is a fold of another log, or is beyond the position of the
// copy. The added store may be before that position: a store does not write its position again at
// once when the log had nothing for it. checkPosition cannot see whether that is the reason, so the
// caller must have folded the added store up to the position of the copy.
func (r *copyResizer) checkPosition(added *pebble.DB) error {
	own, err := readWholePosition(r.db)
	if err != nil {
		return err
	}
	other, err := readWholePosition(added)
	if err != nil {
		return err
	}
	if other.Seq > own.Seq || other.Seq > 0 && own.Log != other.Log {
		return fmt.Errorf("%w: they are at %d of log %x, it is at %d of log %x",
			errIncompatibleRows, other.Seq, other.Log, own.Seq, own.Log)
	}
	return nil
}

// readWholePosition returns the position of a store, or the zero cursor if nothing is folded yet.
// It fails with [projections.ErrNotReady] if the position is inside an envelope.
func readWholePosition(db *pebble.DB) (events.Cursor, error) {
	row, err := readRow(db, checkpointKey)
	if err != nil || row == nil {
		return events.Cursor{}, err
	}
	cursor, part, err := parseCheckpoint(row)
	if err != nil {
		return events.Cursor{}, err
	}
	if part != (progress{}) {
		return events.Cursor{}, projections.ErrNotReady
	}
	return cursor, nil
}

// checkStoreRows fails if the rows of the store as a whole differ between the copy and an added
// store. Position and fingerprint may differ.
func (r *copyResizer) checkStoreRows(added *pebble.DB) (err error) {
	var iters [2]*pebble.Iterator
	for i, db := range []*pebble.DB{r.db, added} {
		if iters[i], err = db.NewIter(&pebble.IterOptions{LowerBound: projections.AppendPrefix(nil, events.NumShards, 0)}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, iters[i].Close()) }()
		iters[i].First()
	}

	own, other := iters[0], iters[1]
	for r.ctx.Err() == nil {
		for _, it := range iters {
			for it.Valid() && !r.isComparedRow(it.Key()) {
				it.Next()
			}
		}
		// An iterator that has failed is not valid either, so check for errors before a missing row
		// is taken for a difference.
		if err := errors.Join(own.Error(), other.Error()); err != nil {
			return err
		}

		switch {
		case !own.Valid() && !other.Valid():
			return nil
		case !own.Valid():
			return fmt.Errorf("%w: they have the row %x of the store", errIncompatibleRows, other.Key())
		case !other.Valid():
			return fmt.Errorf("%w: they lack the row %x of the store", errIncompatibleRows, own.Key())
		case !bytes.Equal(own.Key(), other.Key()) || !bytes.Equal(own.Value(), other.Value()):
			return fmt.Errorf("%w: the row %x = %x of the store, theirs is %x = %x",
				errIncompatibleRows, own.Key(), own.Value(), other.Key(), other.Value())
		}
		own.Next()
		other.Next()
	}
	return r.ctx.Err()
}

// isComparedRow reports whether checkStoreRows compares a row: it belongs to the store as a whole
// and is neither the fingerprint, which names the partitions, nor the position.
func (r *copyResizer) isComparedRow(key []byte) bool {
	return projections.PartitionOf(r.projection, key) == projections.StoreWide && !bytes.Equal(key, fingerprintKey) && !IsCheckpoint(key)
}

// eachRowOfPartitions calls do with the rows of the wanted partitions and of the store as a whole,
// in the order of their keys.
func (r *copyResizer) eachRowOfPartitions(wanted *events.Partitions, do func(key, value []byte) error) error {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; {
		key := it.Key()
		partition := projections.PartitionOf(r.projection, key)
		if partition == projections.StoreWide || wanted.Has(uint8(partition)) {
			var value []byte
			if value, err = it.ValueAndErr(); err == nil {
				err = do(key, value)
			}
			ok = it.Next()
		} else if next := r.skipTarget(key, partition, wanted); next != nil {
			err = r.ctx.Err()
			ok = it.SeekGE(next)
		} else {
			ok = it.Next()
		}
	}
	return errors.Join(err, it.Close())
}

// skipTarget returns the key to which a walk may jump from a row that is not wanted: no wanted row
// is between the two. It returns nil if the very next row may be wanted. key and partition are
// those of the row.
func (r *copyResizer) skipTarget(key []byte, partition int, wanted *events.Partitions) []byte {
	shard := binary.BigEndian.Uint16(key)
	tag := projections.Tag(key[2])
	regions := r.regionTags()
	dated := r.datedTags()
	switch {
	case slices.Contains(regions, tag):
		return nil // neighbors have any home
	case slices.Contains(dated, tag):
		// Jump to the next wanted partition in this month, or behind the month.
		for partition++; partition < events.NumPartitions; partition++ {
			if wanted.Has(uint8(partition)) {
				first, _ := shardRange(uint8(partition))
				return binary.BigEndian.AppendUint16(bytes.Clone(key[:projections.PrefixLen]), first)
			}
		}
		return projections.PrefixEnd(key[:projections.PrefixLen])
	default:
		// The shard belongs to a partition that is not wanted. Only its region rows and dated rows
		// may have another home. The loop ends when tag wraps around to 0.
		for tag++; tag != 0; tag++ {
			if slices.Contains(regions, tag) || slices.Contains(dated, tag) {
				return projections.AppendPrefix(nil, events.Shard(shard), tag)
			}
		}
		return projections.AppendPrefix(nil, events.Shard(shard+1), 0)
	}
}

// ExportRows calls do with the rows of the wanted partitions, and with those of the store as a
// whole, in the order of their keys. The rows are those of a copy in dir that [Store.Checkpoint]
// has made and that is not open. ExportRows fails with [projections.ErrPartial] if the copy does
// not hold all of the partitions.
func ExportRows(
	ctx context.Context, fs FS, dir string, p projections.Projection, wanted events.Partitions, do func(key, value []byte) error,
) (err error) {
	r := &copyResizer{ctx: ctx, fs: fs, projection: p}
	if r.db, err = openForReading(fs, dir, r.projection); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()

	held, err := r.readHeldPartitions(r.db)
	if err != nil {
		return err
	}
	if lacking := wanted.Without(&held); lacking.Len() > 0 {
		return fmt.Errorf("%w: %s lacks %d of these partitions", projections.ErrPartial, p.Name(), lacking.Len())
	}
	return r.eachRowOfPartitions(&wanted, do)
}

// ImportRows makes a store that holds the given partitions, and opens it. It makes generation 1 in
// o.Dir, where no store may exist yet. It ignores the other options that choose a generation or
// partitions, and o.FS must not be nil. eachRow calls its argument with the rows that [ExportRows]
// has produced, usually in another process, in the same order. ImportRows fails if the fingerprint
// or a row of another partition shows that they are not these rows. The caller must remove o.Dir
// after an error.
func ImportRows(
	ctx context.Context, o Options, held events.Partitions, eachRow func(do func(key, value []byte) error) error,
) (s *Store, err error) {
	o.Generation = 1
	o.Partitions = projections.NilIfAll(&held)
	o.Partitioned = false

	storeDir := GenerationDir(o, 1)
	r := &copyResizer{ctx: ctx, fs: o.FS, projection: o.Projection, scratchDir: o.FS.PathJoin(o.Dir, "tables")}
	if err := errors.Join(r.fs.MkdirAll(r.scratchDir, 0o700), r.fs.MkdirAll(storeDir, 0o700)); err != nil {
		return nil, err
	}

	t := r.newTables(LastLevel)
	hasFingerprint := false
	err = eachRow(func(key, value []byte) error {
		switch p := projections.PartitionOf(r.projection, key); {
		case bytes.Equal(key, fingerprintKey):
			// The exported fingerprint names the partitions of the exporting store. Write that of
			// the new store instead.
			value = projections.FingerprintOfPartitions(r.projection, o.Partitions).Encode()
			hasFingerprint = true
		case p != projections.StoreWide && !held.Has(uint8(p)):
			return fmt.Errorf("%w: a row of partition %d was not asked for", errIncompatibleRows, p)
		}
		return t.write(func(w *sstable.Writer) error { return w.Set(key, value) })
	})
	if err = errors.Join(err, t.finishTable()); err == nil && !hasFingerprint {
		err = fmt.Errorf("%w: there is no fingerprint", errIncompatibleRows)
	}
	if err != nil {
		return nil, err
	}

	if err := CreateStore(ctx, r.fs, storeDir, r.projection, t.names); err != nil {
		return nil, err
	}
	return Open(o)
}
