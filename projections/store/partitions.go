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

// errUnlike means that the rows to be added are not a fold of the same log up to the same position as those that are there.
var errIncompatibleRows = errors.New("projections: the added partitions do not go with the store")

// ResizeCopy makes the copy of a store in dir, which no one has open (see [Store.Checkpoint]), a store of other partitions at the same
// position. It removes the rows of partitions that are not in to, and adds those of the stores in the directories added, which have the
// partitions that the copy lacks, each of them once, at the same position. By the law of partitions (I13) the result is the fold for
// to, row for row.
//
// It fails if the rows of the store as a whole, which are equal for every set, differ between the stores. After an error the copy is of
// no use. A live store must never be changed so: what is ingested is on disk before older rows in memory are (I3).
func ResizeCopy(ctx context.Context, fs FS, dir string, p projections.Projection, to events.Partitions, added ...string) (err error) {
	r := &copyResizer{ctx: ctx, fs: fs, projection: p, scratch: dir + ".tables"}
	if err := errors.Join(fs.RemoveAll(r.scratch), fs.MkdirAll(r.scratch, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.RemoveAll(r.scratch)) }()
	if r.db, err = openFiles(fs, dir, p, false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()
	from, err := r.readHeldPartitions(r.db)
	if err != nil {
		return err
	}
	r.dropped, r.missing = from.Without(&to), to.Without(&from)
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
	t := r.newTables(FirstLevel)
	return r.ingest(t, t.write(func(w *sstable.Writer) error {
		return w.Set(fingerprintKey, projections.FingerprintOfPartitions(p, &to).Encode())
	}))
}

// openFiles opens the files of a store that is not open.
func openFiles(fs FS, dir string, p projections.Projection, readOnly bool) (*pebble.DB, error) {
	o := tableOptions(fs, p, mergerOf(p))
	o.DisableWAL, o.DisableAutomaticCompactions, o.Logger = true, true, quietEngine{}
	o.ErrorIfNotExists, o.ReadOnly = true, readOnly
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", dir, p.Name(), err)
	}
	return db, nil
}

// resizing is the change of one copy. Everything is written into tables that are ingested: nothing is ever in memory only, so an error of
// the disk is returned at once.
type copyResizer struct {
	ctx        context.Context //nolint:containedctx // that of the call
	fs         FS
	db         *pebble.DB
	projection projections.Projection
	scratch    string
	tableCount int
	// dropped are partitions that the copy has and is not to have; missing are those that it is to have and has not yet.
	dropped, missing events.Partitions
}

// newTables are tables of sorted rows or deletions.
type tableSet struct {
	resizer *copyResizer
	level   TableLevel
	writer  *sstable.Writer // nil between two tables
	names   []string
}

// newTableBytes is about the size of a table, in bytes.
const newTableBytes = 32 << 20

func (r *copyResizer) newTables(level TableLevel) *tableSet {
	return &tableSet{resizer: r, level: level}
}

// write calls do with the table that is being written.
func (t *tableSet) write(do func(w *sstable.Writer) error) (err error) {
	if t.writer == nil {
		name := t.resizer.fs.PathJoin(t.resizer.scratch, fmt.Sprintf("%06d", t.resizer.tableCount))
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

// cut ends a table.
func (t *tableSet) finishTable() error {
	if t.writer == nil {
		return nil
	}
	err := t.writer.Close()
	t.writer = nil
	return errors.Join(err, t.resizer.ctx.Err())
}

// ingest takes the tables into the copy, unless writing them has failed.
func (r *copyResizer) ingest(t *tableSet, err error) error {
	if err = errors.Join(err, t.finishTable(), r.ctx.Err()); err != nil || len(t.names) == 0 {
		return err
	}
	return r.db.Ingest(r.ctx, t.names)
}

// heldBy returns the partitions that files hold, which must be of this fold.
func (r *copyResizer) readHeldPartitions(db *pebble.DB) (held events.Partitions, err error) {
	row, err := readRow(db, fingerprintKey)
	if err != nil {
		return held, err
	}
	var was projections.Fingerprint
	if err := json.Unmarshal(row, &was); err != nil {
		return held, fmt.Errorf("%w: fingerprint: %w", projections.ErrCorrupt, err)
	}
	parts, err := projections.ParseHeld(was.Partitions)
	if err != nil {
		return held, err
	}
	of := projections.Holding{Projection: r.projection, Held: parts}
	if now := projections.FingerprintOfPartitions(r.projection, parts); !bytes.Equal(row, now.Encode()) {
		return held, fmt.Errorf("%w: %s", projections.ErrFingerprint, was.Differences(now))
	}
	return of.Partitions(), nil
}

// drop removes the rows of the dropped partitions.
func (r *copyResizer) dropPartitions() error {
	if r.dropped.Len() == 0 {
		return nil
	}
	t := r.newTables(FirstLevel)
	err := r.dropped.Each(func(partition uint8) error { return errors.Join(r.dropInPlace(t, partition), t.finishTable()) })
	if err := r.ingest(t, err); err != nil {
		return err
	}
	for _, tag := range r.regions() {
		t := r.newTables(FirstLevel)
		if err := r.ingest(t, r.dropRegionRows(t, tag)); err != nil {
			return err
		}
	}
	for _, tag := range r.dated() {
		t := r.newTables(FirstLevel)
		if err := r.ingest(t, r.dropDatedRows(t, tag)); err != nil {
			return err
		}
	}
	return nil
}

func (r *copyResizer) regions() []projections.Tag {
	if of, ok := r.projection.(projections.Regional); ok {
		return of.Regions()
	}
	return nil
}

func (r *copyResizer) dated() []projections.Tag {
	if of, ok := r.projection.(projections.Dated); ok {
		return of.Dated()
	}
	return nil
}

// shardsOf returns the shards of a partition: the first, and the first of the next partition.
func shardRange(partition uint8) (first, end uint16) {
	const shards = events.NumShards / events.NumPartitions
	return uint16(partition) * shards, (uint16(partition) + 1) * shards
}

// dropInPlace drops the rows that stand in the shards of a partition because it is their home: all but those of regions, which are found
// by an id of these shards, and those whose keys begin with a month, which may be the number of a shard.
func (r *copyResizer) dropInPlace(t *tableSet, partition uint8) error {
	others := slices.Concat(r.regions(), r.dated())
	slices.Sort(others)
	return t.write(func(w *sstable.Writer) (err error) {
		for shard, end := shardRange(partition); shard < end; shard++ {
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

// eachOf calls do with the key of every row of a tag, which returns the key to go on from; nil means the next one.
func (r *copyResizer) eachRowOfTag(tag projections.Tag, do func(key []byte) (next []byte, err error)) (err error) {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var next []byte
	for ok := it.SeekGE(projections.AppendPrefix(nil, 0, tag)); ok && err == nil; {
		key := it.Key()
		if len(key) < projections.PrefixLen {
			return projections.RowError("key", key)
		}
		shard := binary.BigEndian.Uint16(key)
		switch of := projections.Tag(key[2]); {
		case of < tag:
			next = projections.AppendPrefix(nil, events.Shard(shard), tag)
		case of == tag:
			if next, err = do(key); err != nil {
				return err
			}
		case shard == uint16(projections.StoreShard):
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

// dropOfRegion drops rows of a region, which stand among those of other homes.
func (r *copyResizer) dropRegionRows(t *tableSet, tag projections.Tag) error {
	return r.eachRowOfTag(tag, func(key []byte) ([]byte, error) {
		if p := projections.PartitionOf(r.projection, key); p == projections.StoreWide || !r.dropped.Has(uint8(p)) {
			return nil, nil
		}
		return nil, t.write(func(w *sstable.Writer) error { return w.Delete(key) })
	})
}

// dropDated drops rows that begin with a month. Those of one month and partition are neighbors.
func (r *copyResizer) dropDatedRows(t *tableSet, tag projections.Tag) error {
	return r.eachRowOfTag(tag, func(key []byte) ([]byte, error) {
		date := bytes.Clone(key[:projections.PrefixLen])
		return projections.PrefixEnd(date), r.dropped.Each(func(partition uint8) error {
			first, end := shardRange(partition)
			lower, upper := binary.BigEndian.AppendUint16(slices.Clip(date), first), binary.BigEndian.AppendUint16(slices.Clip(date), end)
			return t.write(func(w *sstable.Writer) error { return w.DeleteRange(lower, upper) })
		})
	})
}

// add takes the rows of a store of missing partitions.
func (r *copyResizer) addPartitions(dir string) (err error) {
	from, err := openFiles(r.fs, dir, r.projection, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	held, err := r.readHeldPartitions(from)
	if more := held.Without(&r.missing); err == nil && more.Len() > 0 {
		err = fmt.Errorf("%w: %d partitions are there already, or not wanted", errIncompatibleRows, more.Len())
	}
	if err == nil {
		err = r.checkPosition(from)
	}
	if err == nil {
		err = r.checkStoreRows(from)
	}
	if err != nil {
		return err
	}
	r.missing = r.missing.Without(&held)
	t := r.newTables(LastLevel)
	return r.ingest(t, r.copyRows(t, from))
}

// copyRows copies the rows of a store, except those of the store as a whole.
func (r *copyResizer) copyRows(t *tableSet, from *pebble.DB) error {
	it, err := from.NewIter(nil)
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

// samePosition fails if the added rows are of another log, or beyond the position of the copy. They may have stopped before it where the
// rest of the log has nothing for the projection.
func (r *copyResizer) checkPosition(db *pebble.DB) error {
	var at [2]events.Cursor
	for i, of := range []*pebble.DB{r.db, db} {
		row, err := readRow(of, checkpointKey)
		if err != nil {
			return err
		}
		if row == nil { // nothing is folded
			continue
		}
		var part progress
		if at[i], part, err = parseCheckpoint(row); err != nil {
			return err
		}
		if part != (progress{}) {
			return projections.ErrNotReady
		}
	}
	if at[1].Seq > at[0].Seq || at[1].Seq > 0 && at[0].Log != at[1].Log {
		return fmt.Errorf("%w: they are at %d of log %x, it is at %d of log %x", errIncompatibleRows, at[1].Seq, at[1].Log, at[0].Seq, at[0].Log)
	}
	return nil
}

// sameStoreRows fails if the rows of the store as a whole differ, apart from the position and the fingerprint.
func (r *copyResizer) checkStoreRows(db *pebble.DB) (err error) {
	var rows [2]*pebble.Iterator
	for i, of := range []*pebble.DB{r.db, db} {
		if rows[i], err = of.NewIter(&pebble.IterOptions{LowerBound: projections.AppendPrefix(nil, events.NumShards, 0)}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows[i].Close()) }()
		rows[i].First()
	}
	for r.ctx.Err() == nil {
		for _, it := range rows {
			for it.Valid() && !r.isStoreRow(it.Key()) {
				it.Next()
			}
		}
		it, theirs := rows[0], rows[1]
		if err := errors.Join(it.Error(), theirs.Error()); err != nil {
			return err // a row that cannot be read is no difference
		}
		switch {
		case !it.Valid() && !theirs.Valid():
			return nil
		case !it.Valid():
			return fmt.Errorf("%w: they have the row %x of the store", errIncompatibleRows, theirs.Key())
		case !theirs.Valid():
			return fmt.Errorf("%w: they lack the row %x of the store", errIncompatibleRows, it.Key())
		case !bytes.Equal(it.Key(), theirs.Key()) || !bytes.Equal(it.Value(), theirs.Value()):
			return fmt.Errorf("%w: the row %x = %x of the store, theirs is %x = %x", errIncompatibleRows, it.Key(), it.Value(), theirs.Key(), theirs.Value())
		}
		it.Next()
		theirs.Next()
	}
	return r.ctx.Err()
}

func (r *copyResizer) isStoreRow(key []byte) bool {
	return projections.PartitionOf(r.projection, key) == projections.StoreWide && !bytes.Equal(key, fingerprintKey) && !IsCheckpoint(key)
}

// give walks over the rows of some partitions and of the store as a whole.
func (r *copyResizer) eachRowOfPartitions(of *events.Partitions, do func(key, value []byte) error) error {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; {
		key := it.Key()
		partition := projections.PartitionOf(r.projection, key)
		if partition == projections.StoreWide || of.Has(uint8(partition)) {
			var value []byte
			if value, err = it.ValueAndErr(); err == nil {
				err = do(key, value)
			}
			ok = it.Next()
		} else if next := r.seekTarget(key, partition, of); next != nil {
			err = r.ctx.Err()
			ok = it.SeekGE(next)
		} else {
			ok = it.Next()
		}
	}
	return errors.Join(err, it.Close())
}

// beyond returns a key behind that of a row that is not wanted, before which there is no row of the partitions of. It returns nil for the
// next row.
func (r *copyResizer) seekTarget(key []byte, partition int, of *events.Partitions) []byte {
	shard, tag := binary.BigEndian.Uint16(key), projections.Tag(key[2])
	switch regions, dated := r.regions(), r.dated(); {
	case slices.Contains(regions, tag):
		return nil // among rows of all homes
	case slices.Contains(dated, tag):
		for partition++; partition < events.NumPartitions; partition++ {
			if of.Has(uint8(partition)) {
				first, _ := shardRange(uint8(partition))
				return binary.BigEndian.AppendUint16(bytes.Clone(key[:projections.PrefixLen]), first)
			}
		}
		return projections.PrefixEnd(key[:projections.PrefixLen])
	default:
		// Rows of this shard that are wanted are of tags whose rows are elsewhere than their homes.
		for tag++; tag != 0; tag++ {
			if slices.Contains(regions, tag) || slices.Contains(dated, tag) {
				return projections.AppendPrefix(nil, events.Shard(shard), tag)
			}
		}
		return projections.AppendPrefix(nil, events.Shard(shard+1), 0)
	}
}

// ExportRows calls do with the rows of some partitions, and with those of the store as a whole, in the order of their keys. The rows are
// those of a copy in dir, which no one has open (see [Store.Checkpoint]). It fails with [projections.ErrPartial] if the copy does not hold all of the
// partitions.
func ExportRows(ctx context.Context, fs FS, dir string, p projections.Projection, of events.Partitions, do func(key, value []byte) error) (err error) {
	r := &copyResizer{ctx: ctx, fs: fs, projection: p}
	if r.db, err = openFiles(fs, dir, r.projection, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.db.Close()) }()
	held, err := r.readHeldPartitions(r.db)
	if err != nil {
		return err
	}
	if lacking := of.Without(&held); lacking.Len() > 0 {
		return fmt.Errorf("%w: %s lacks %d of these partitions", projections.ErrPartial, p.Name(), lacking.Len())
	}
	return r.eachRowOfPartitions(&of, do)
}

// ImportRows makes a store of some partitions, which does not exist, of the rows that [ExportRows] of another process gives, and opens it.
// The options say where.
func ImportRows(ctx context.Context, o Options, of events.Partitions, give func(do func(key, value []byte) error) error) (s *Store, err error) {
	o.Generation, o.Partitions, o.Partitioned = 1, projections.NilIfAll(&of), false
	fs, files := o.FS, GenerationDir(o, 1)
	r := &copyResizer{ctx: ctx, fs: fs, projection: o.Projection, scratch: fs.PathJoin(o.Dir, "tables")}
	if err := errors.Join(fs.MkdirAll(r.scratch, 0o700), fs.MkdirAll(files, 0o700)); err != nil {
		return nil, err
	}
	t, whole := r.newTables(LastLevel), false
	err = give(func(key, value []byte) error {
		switch p := projections.PartitionOf(r.projection, key); {
		case bytes.Equal(key, fingerprintKey):
			value, whole = projections.FingerprintOfPartitions(r.projection, o.Partitions).Encode(), true
		case p != projections.StoreWide && !of.Has(uint8(p)):
			return fmt.Errorf("%w: a row of partition %d was not asked for", errIncompatibleRows, p)
		}
		return t.write(func(w *sstable.Writer) error { return w.Set(key, value) })
	})
	if err = errors.Join(err, t.finishTable()); err == nil && !whole {
		err = fmt.Errorf("%w: there is no fingerprint", errIncompatibleRows)
	}
	if err != nil {
		return nil, err
	}
	if err := CreateStore(ctx, fs, files, r.projection, t.names); err != nil {
		return nil, err
	}
	return Open(o)
}
