package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections/store"
)

// DrillOptions say which snapshot a drill restores. The Dir of the RestoreOptions is a scratch
// directory. It is removed before and after the drill.
type DrillOptions struct {
	RestoreOptions

	// Tail folds the rest of the log into the store. It needs the settings of the snapshot. nil
	// means that there is no log.
	Tail func(context.Context, *store.Store) error
}

// DrillReport describes a drill.
type DrillReport struct {
	RestoreReport

	// Rows is the number of rows in the store. All of them were read, in the time Read.
	Rows uint64
	Read time.Duration
	// Tail is how long folding the rest of the log took, up to the sequence ToSeq. If ToSeq is 0,
	// it was not folded.
	Tail  time.Duration
	ToSeq uint64
}

// String describes the result to people.
func (d DrillReport) String() string {
	bytes := d.Manifest.Bytes()
	text := fmt.Sprintf("%s from snapshot %s at sequence %d: downloaded and checked %d bytes in %s (%.1f MB/s), opened in %s, "+
		"read %d rows in %s", d.Manifest.Projection, d.Manifest.Snapshot, d.Manifest.Cursor.Seq, bytes, roundDuration(d.Download),
		float64(bytes)/1e6/max(d.Download.Seconds(), 1e-9), roundDuration(d.Open), d.Rows, roundDuration(d.Read))
	if d.ToSeq > 0 {
		text += fmt.Sprintf(", folded the log to sequence %d in %s", d.ToSeq, roundDuration(d.Tail))
	}
	return text
}

// roundDuration rounds a duration to what people want to see.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}

// Drill proves that a snapshot can be restored. It restores the snapshot into the scratch
// directory, reads every row, and folds the rest of the log if there is one. In the end it removes
// everything.
func Drill(ctx context.Context, o DrillOptions) (done DrillReport, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.AnySettings = o.Tail == nil // nothing is folded then

	if err := o.FS.RemoveAll(o.Dir); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, o.FS.RemoveAll(o.Dir)) }()

	done.RestoreReport, err = Restore(ctx, o.RestoreOptions)
	if err != nil {
		return done, err
	}
	if err := done.readAllRows(ctx, &o); err != nil {
		return done, err
	}
	if o.Tail == nil {
		return done, nil
	}

	store, err := store.Open(store.Options{FS: o.FS, Dir: o.Dir, Projection: o.Projection, Partitioned: true})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	startTime := time.Now()
	if err := o.Tail(ctx, store); err != nil {
		return done, fmt.Errorf("fold the rest of the log: %w", err)
	}
	done.Tail = time.Since(startTime)
	done.ToSeq = store.Cursor().Seq
	return done, nil
}

// readAllRows reads all rows, so that the storage engine verifies the checksum of every block.
func (d *DrillReport) readAllRows(ctx context.Context, o *DrillOptions) (err error) {
	startTime := time.Now()
	store, err := store.Open(store.Options{
		FS: o.FS, Dir: o.Dir, Projection: o.Projection, Partitioned: true, ReadOnly: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	view, err := store.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()

	it := view.Iter(nil, nil)
	for it.Next() {
		d.Rows++
		if d.Rows%4096 == 0 && ctx.Err() != nil {
			return errors.Join(ctx.Err(), it.Close())
		}
	}
	d.Read = time.Since(startTime)
	return it.Close()
}
