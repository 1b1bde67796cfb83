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

// errWhole is of a projection whose generations hold all partitions.
var errWhole = errors.New("it is no projection of a node of a cluster, so it holds all partitions")

// Resize makes a projection hold other partitions. It makes the next generation, which holds them, beside the one that serves, and cuts
// over to it, as [Rebuild] does; [live.Live.Run] must be running. Until then, and for ever if it fails or is interrupted, the
// generation that serves continues with its partitions. Views that are open keep theirs. The report is for people.
//
// The next generation begins as a copy of the one that serves: of links to its files, in which rows of partitions that are not to be held
// any more are deleted, and to which those are added that it lacks. These are copied from other nodes, and folded up to the position of
// the copy; partitions that no node gives are built from the log. Where what serves has none of the partitions that are to be held, or
// does not continue, the next generation begins without it.
//
// A projection that is new, and holds no partition, is resized like any other, and so is one that is to hold none. One that holds the
// partitions already is left as it is.
func Resize(ctx context.Context, serving *live.Live, to events.Partitions, subscribe SubscribeFunc, o Options) (
	report string, err error,
) {
	if from := serving.Holds(); serving.Partitioned() && from == to {
		return fmt.Sprintf("it holds these %d partitions already", to.Len()), nil
	}
	r := NewResizing(serving, to, subscribe, o)
	if err := r.Copy(ctx); err != nil {
		return "", err
	}
	return r.CutOver(ctx)
}

// Resizing is a [Resize] in two steps, for a caller that shows how far it is: Copy, then CutOver. When a step fails, it has deleted what
// was built, the generation that serves continues, and there is no further step.
type Resizing struct {
	run

	// held are the partitions that the projection holds before, to those that it holds after.
	held, to  events.Partitions
	subscribe SubscribeFunc
}

// NewResizing prepares a resize, which begins with Copy. The projection should not hold the partitions already.
func NewResizing(serving *live.Live, to events.Partitions, subscribe SubscribeFunc, o Options) *Resizing {
	return &Resizing{run: run{live: serving, o: o.withDefaults()}, held: serving.Holds(), to: to, subscribe: subscribe}
}

// Copy makes the next generation. Rows that the projection lacks are copied from other nodes or built from the log.
func (r *Resizing) Copy(ctx context.Context) error {
	if !r.live.Partitioned() {
		return r.failure(errWhole)
	}
	if err := checkDisk(r.live, r.to, r.o); err != nil {
		return r.failure(err)
	}
	r.began = time.Now()
	next, err := r.live.BuildNext(ctx, func(dir string) error { return r.resize(ctx, r.subscribe, dir, r.to) })
	if err != nil {
		return r.failure(err)
	}
	r.next = next
	if r.copied {
		r.from = next.Cursor().Seq
	}
	return nil
}

// CutOver folds what the log has had since Copy into the next generation, and makes that one serve. The report is for people.
func (r *Resizing) CutOver(ctx context.Context) (report string, err error) {
	if report, err = r.all(ctx, r.subscribe); err != nil {
		return "", r.failure(err)
	}
	return fmt.Sprintf("%d partitions in place of %d, %d of them copied from other nodes: ",
		r.to.Len(), r.held.Len(), r.given) + report, nil
}

func (r *Resizing) failure(err error) error {
	return fmt.Errorf("resize %s from %d partitions to %d: %w", r.live.Name(), r.held.Len(), r.to.Len(), err)
}

// resize makes a store of other partitions in a directory.
func (r *run) resize(ctx context.Context, subscribe SubscribeFunc, dir string, to events.Partitions) (err error) {
	from, st, fs := r.live.Holds(), r.live.Status(), r.live.FS()
	kept, lacking := from, to.Without(&from)
	kept.Intersect(&to)
	anew := kept.Len() == 0 && lacking.Len() > 0 || st.Damaged || st.State == store.Outdated
	if anew {
		lacking = to
	}
	copies := dir + ".copies"
	if err := fs.RemoveAll(copies); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.RemoveAll(copies)) }()
	c := &copying{run: r, subscribe: subscribe, dir: copies}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.take(ctx, lacking); err != nil {
		return err
	}
	if anew && len(c.stores) == 0 {
		return r.build(ctx, subscribe, dir, to, nil)
	}
	r.copied = true
	// All parts go to one position, which none of them is beyond: that of a copy of what serves, if that is kept.
	last := func(seq uint64) (uint64, error) {
		seq = max(seq, c.newest())
		if anew {
			return seq, nil
		}
		if err := r.live.WaitFor(ctx, seq); err != nil {
			return 0, err
		}
		at, err := r.live.Serving().Checkpoint(ctx, dir)
		return at.Seq, err
	}
	parts, err := c.upTo(ctx, last)
	if err != nil {
		return err
	}
	if anew {
		if err := fs.Rename(parts[0], dir); err != nil {
			return err
		}
		parts = parts[1:]
	}
	return store.ResizeCopy(ctx, fs, dir, r.live.New(), to, parts...)
}
