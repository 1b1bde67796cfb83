package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

// errNotPartitioned means that the generations of the projection hold all partitions and cannot be
// resized.
var errNotPartitioned = errors.New("it is no projection of a node of a cluster, so it holds all partitions")

// Resize makes a projection hold other partitions. It builds the next generation, which holds them,
// while the present one serves, and cuts over to it, as [Rebuild] does; [live.Live.Run] must be
// running. The present generation continues with its partitions until the cut-over, and for good if
// Resize fails or is interrupted. Views that are open keep their partitions. The report tells
// people what was done.
//
// The next generation starts as a copy of the present one, made of links to its files. In the copy,
// rows of partitions that are not wanted any more are deleted, and the rows of missing partitions
// are added. These are copied from other nodes and folded to the position of the copy; partitions
// that no node gives are built from the log. If the present generation has none of the wanted
// partitions, or does not follow the log any more, the next generation does not start as a copy of
// it.
//
// A new projection that holds no partition yet can be resized like any other, and so can one that
// is to hold none. If the projection holds exactly these partitions already, Resize does nothing.
func Resize(
	ctx context.Context, serving *live.Live, to events.Partitions, subscribe SubscribeFunc, o Options,
) (report string, err error) {
	if from := serving.Holds(); serving.Partitioned() && from == to {
		return fmt.Sprintf("it holds these %d partitions already", to.Len()), nil
	}

	r := NewResizing(serving, to, subscribe, o)
	if err := r.Copy(ctx); err != nil {
		return "", err
	}
	return r.CutOver(ctx)
}

// Resizing is a [Resize] in two steps, Copy and then CutOver, for a caller that shows how far it
// is. If a step fails, what was built is deleted, the present generation continues, and the
// Resizing cannot be used any more.
type Resizing struct {
	rebuildState

	// oldPartitions are the partitions before the resize, and newPartitions those after it.
	oldPartitions, newPartitions events.Partitions
	subscribe                    SubscribeFunc
}

// NewResizing prepares a resize. It does nothing until Copy is called. The projection should not
// hold exactly these partitions already.
func NewResizing(serving *live.Live, to events.Partitions, subscribe SubscribeFunc, o Options) *Resizing {
	return &Resizing{
		rebuildState:  rebuildState{live: serving, opts: o.withDefaults()},
		oldPartitions: serving.Holds(),
		newPartitions: to,
		subscribe:     subscribe,
	}
}

// Copy makes the next generation. It copies rows that the projection lacks from other nodes, or
// builds them from the log.
func (r *Resizing) Copy(ctx context.Context) error {
	if !r.live.Partitioned() {
		return r.wrapError(errNotPartitioned)
	}
	if err := checkDisk(r.live, r.newPartitions, r.opts); err != nil {
		return r.wrapError(err)
	}

	r.startTime = time.Now()
	next, err := r.live.BuildNext(ctx, func(dir string) error {
		return r.makeResizedStore(ctx, r.subscribe, dir, r.newPartitions)
	})
	if err != nil {
		return r.wrapError(err)
	}
	r.next = next
	if r.startsAsCopy {
		r.startSeq = next.Cursor().Seq
	}
	return nil
}

// CutOver folds the events that the log has received since Copy into the next generation, and makes
// it serve. The report tells people what was done.
func (r *Resizing) CutOver(ctx context.Context) (report string, err error) {
	if report, err = r.catchUpAndCutOver(ctx, r.subscribe); err != nil {
		return "", r.wrapError(err)
	}
	return fmt.Sprintf("%d partitions in place of %d, %d of them copied from other nodes: ",
		r.newPartitions.Len(), r.oldPartitions.Len(), r.copiedPartitions) + report, nil
}

// wrapError adds what was to be resized to an error.
func (r *Resizing) wrapError(err error) error {
	return fmt.Errorf("resize %s from %d partitions to %d: %w", r.live.Name(), r.oldPartitions.Len(), r.newPartitions.Len(), err)
}

// makeResizedStore makes a store of the wanted partitions in dir. See [Resize] for where the rows
// come from.
func (r *rebuildState) makeResizedStore(
	ctx context.Context, subscribe SubscribeFunc, dir string, wanted events.Partitions,
) (err error) {
	present := r.live.Holds()
	st := r.live.Status()

	shared := present
	shared.Intersect(&wanted)
	missing := wanted.Without(&present)

	// The present generation cannot be copied if it is of no use for the next one, or does not
	// follow the log.
	withoutPresent := shared.Len() == 0 && missing.Len() > 0 || st.Damaged || st.State == store.Outdated
	if withoutPresent {
		missing = wanted
	}
	return r.joinParts(ctx, subscribe, dir, wanted, missing, withoutPresent)
}

// joinParts makes a store of the wanted partitions in dir. It copies the rows of the missing
// partitions from the sources, and builds those that no source gives from the log. The rows of the
// other partitions are in the present generation, of which the store starts as a copy. If
// withoutPresent is set, all wanted partitions are missing, and the store does not start as a copy.
func (r *rebuildState) joinParts(
	ctx context.Context, subscribe SubscribeFunc, dir string, wanted, missing events.Partitions, withoutPresent bool,
) (err error) {
	fs := r.live.FS()
	copies := dir + ".copies"
	// A rebuild that was interrupted may have left the second directory.
	if err := errors.Join(fs.RemoveAll(copies), fs.RemoveAll(dir+".parts")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.RemoveAll(copies)) }()

	c := &partitionCopier{rebuildState: r, subscribe: subscribe, dir: copies}
	defer func() { err = errors.Join(err, c.closeStores()) }()
	if err := c.copyFromSources(ctx, missing); err != nil {
		return err
	}
	if withoutPresent && len(c.stores) == 0 {
		// All partitions are built from the log, in a single store.
		return r.buildStore(ctx, subscribe, dir, wanted, nil)
	}

	// All parts must be folded to one position. A fold cannot go back, so the position must not be
	// before that of any part. If the present generation is copied, the position is that of the
	// copy.
	r.startsAsCopy = true
	chooseLast := func(atLeast uint64) (uint64, error) {
		seq := max(atLeast, c.maxCopiedSeq())
		if withoutPresent {
			return seq, nil
		}
		if err := r.live.WaitFor(ctx, seq); err != nil {
			return 0, err
		}
		cursor, err := r.live.Serving().Checkpoint(ctx, dir)
		return cursor.Seq, err
	}
	parts, err := c.foldAll(ctx, chooseLast)
	if err != nil {
		return err
	}

	if withoutPresent {
		// The first part becomes the store to which the others are added.
		if err := fs.Rename(parts[0], dir); err != nil {
			return err
		}
		parts = parts[1:]
	}
	return store.ResizeCopy(ctx, fs, dir, r.live.New(), wanted, parts...)
}
