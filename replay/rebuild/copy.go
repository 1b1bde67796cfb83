package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// Source is another node from which rows can be copied.
type Source struct {
	Name string
	// Has are the partitions whose rows the node has.
	Has events.Partitions
	// Rows calls do with each row of some partitions of a projection. fold is the hash that
	// [live.Live.FoldHash] returns: the node refuses if its rows are made by another fold.
	Rows func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error
}

// partitionCopier makes the stores of the partitions that a resize adds. It copies rows of other
// nodes, which are at different positions of the log, into one store per node, and builds the
// partitions that no node gives from the log. Then it folds all stores to one position.
type partitionCopier struct {
	*rebuildState
	subscribe SubscribeFunc
	// dir is the directory under which the stores are made.
	dir string
	// stores are the open stores of copied rows, one per node.
	stores []*store.Store
	// uncopied are the partitions that no node has given.
	uncopied events.Partitions
}

// copyFromSources copies the rows of the wanted partitions from other nodes, from all at once. If a
// node fails to give its share, that is no error: the partitions stay uncopied, and foldAll builds
// them from the log.
func (c *partitionCopier) copyFromSources(ctx context.Context, wanted events.Partitions) error {
	c.uncopied = wanted
	if c.opts.Sources == nil {
		return nil
	}

	sources := c.opts.Sources()
	assigned := assignSources(wanted, sources)
	stores := make([]*store.Store, len(sources)) // the goroutines must not append to one list
	var group errgroup.Group
	for i, s := range sources {
		if assigned[i].Len() == 0 {
			continue
		}
		group.Go(func() error {
			var err error
			dir := c.live.FS().PathJoin(c.dir, fmt.Sprint(i))
			stores[i], err = c.live.ImportPartitions(ctx, dir, assigned[i], func(do func(key, value []byte) error) error {
				return s.Rows(ctx, c.live.Name(), c.live.FoldHash(), assigned[i], c.throttleRows(ctx, do))
			})
			if err != nil && ctx.Err() == nil {
				c.opts.Logger.Warn("rows are built from the log, since a node does not give them",
					"projection", c.live.Name(), "node", s.Name, "partitions", assigned[i].Len(), "error", err)
				return c.live.FS().RemoveAll(dir)
			}
			return err
		})
	}
	err := group.Wait()

	// Register the stores even after an error, so that closeStores closes them.
	for i, s := range stores {
		if s != nil {
			c.stores = append(c.stores, s)
			c.uncopied = c.uncopied.Without(&assigned[i])
			c.copiedPartitions += assigned[i].Len()
		}
	}
	return err
}

// assignSources assigns each wanted partition to a source that has it, about as many to each
// source. It returns the partitions of each source. Partitions that no source has are assigned to
// none.
func assignSources(wanted events.Partitions, sources []Source) []events.Partitions {
	assigned := make([]events.Partitions, len(sources))
	_ = wanted.Each(func(partition uint8) error {
		leastLoaded := -1
		for i := range sources {
			if !sources[i].Has.Has(partition) {
				continue
			}
			if leastLoaded < 0 || assigned[i].Len() < assigned[leastLoaded].Len() {
				leastLoaded = i
			}
		}
		if leastLoaded >= 0 {
			assigned[leastLoaded].Add(partition)
		}
		return nil
	})
	return assigned
}

// throttleRows returns a function that calls do. Every few thousand rows, it also rests as the pace
// demands, and fails if the disk is nearly full.
func (c *partitionCopier) throttleRows(ctx context.Context, do func(key, value []byte) error) func(key, value []byte) error {
	const rowsPerRest = 1 << 12
	rows := 0
	began := time.Now()
	return func(key, value []byte) error {
		rows++
		if rows%rowsPerRest != 0 {
			return do(key, value)
		}
		if err := errors.Join(c.checkFree(), c.opts.Pace.Rest(ctx, time.Since(began))); err != nil {
			return err
		}
		began = time.Now()
		return do(key, value)
	}
}

// maxCopiedSeq returns the greatest sequence that any copied store has reached; 0 if there are
// none.
func (c *partitionCopier) maxCopiedSeq() uint64 {
	if len(c.stores) == 0 {
		return 0
	}
	newest := slices.MaxFunc(c.stores, func(a, b *store.Store) int { return cmp.Compare(a.Cursor().Seq, b.Cursor().Seq) })
	return newest.Cursor().Seq
}

// foldAll builds the uncopied partitions from the log and folds the copied stores, all to the same
// sequence. It asks chooseLast for that sequence once, with a lower bound: the sequence that the
// build from the log has reached. foldAll closes the stores and returns their directories.
func (c *partitionCopier) foldAll(
	ctx context.Context, chooseLast func(atLeast uint64) (uint64, error),
) (dirs []string, err error) {
	var seq uint64
	choose := func(atLeast uint64) (uint64, error) {
		seq, err = chooseLast(atLeast)
		return seq, err
	}

	if c.uncopied.Len() > 0 {
		dir := c.live.FS().PathJoin(c.dir, "left")
		if err := c.buildStore(ctx, c.subscribe, dir, c.uncopied, choose); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	} else if _, err := choose(0); err != nil {
		return nil, err
	}

	for _, s := range c.stores {
		if err := c.foldStore(ctx, s, seq); err != nil {
			return nil, err
		}
		dirs = append(dirs, s.Dir())
	}
	return dirs, c.closeStores()
}

// foldStore folds the log into a store, up to the sequence last.
func (c *partitionCopier) foldStore(ctx context.Context, s *store.Store, last uint64) error {
	if s.Cursor().Seq >= last {
		return nil
	}

	sub, err := c.subscribe(s.Cursor(), neededKinds(s.Projection()))
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()

	for passedLast := false; !passedLast && s.Cursor().Seq < last; {
		if passedLast, err = c.readAndFold(ctx, sub, last, s.Fold); err != nil {
			return err
		}
	}
	return nil
}

// closeStores closes the stores that are still open. Their rows are safely on disk then.
func (c *partitionCopier) closeStores() (err error) {
	for _, s := range c.stores {
		err = errors.Join(err, s.Close())
	}
	c.stores = nil
	return err
}
