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

// Source is another node, which has rows.
type Source struct {
	Name string
	// Has are the partitions whose rows it has.
	Has events.Partitions
	// Rows calls do with the rows of some partitions of a projection, see [live.Live.ExportPartitions].
	Rows func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error
}

// copying makes stores of partitions that a resize adds: of rows that other nodes give, which are a fold of the log to different
// positions, and of the log where none does. All are then folded to one position.
type copying struct {
	*run
	subscribe SubscribeFunc
	dir       string
	// stores are those that were copied, each open. left are partitions that no node has given.
	stores []*store.Store
	left   events.Partitions
}

// take copies the rows of partitions from other nodes. A node that does not give them is no error: they are left.
func (c *copying) take(ctx context.Context, wanted events.Partitions) error {
	c.left = wanted
	if c.o.Sources == nil {
		return nil
	}
	sources := c.o.Sources()
	from := divide(wanted, sources)
	stores := make([]*store.Store, len(sources))
	var all errgroup.Group
	for i, s := range sources {
		if from[i].Len() == 0 {
			continue
		}
		all.Go(func() error {
			var err error
			dir := c.live.FS().PathJoin(c.dir, fmt.Sprint(i))
			stores[i], err = c.live.ImportPartitions(ctx, dir, from[i], func(do func(key, value []byte) error) error {
				return s.Rows(ctx, c.live.Name(), c.live.FoldHash(), from[i], c.pacing(ctx, do))
			})
			if err != nil && ctx.Err() == nil {
				c.o.Logger.Warn("rows are built from the log, since a node does not give them", "projection", c.live.Name(), "node", s.Name,
					"partitions", from[i].Len(), "error", err)
				return c.live.FS().RemoveAll(dir)
			}
			return err
		})
	}
	err := all.Wait()
	for i, s := range stores {
		if s != nil {
			c.stores = append(c.stores, s)
			c.left = c.left.Without(&from[i])
			c.given += from[i].Len()
		}
	}
	return err
}

// divide gives each partition to a source that has it, and about as many to each.
func divide(wanted events.Partitions, sources []Source) []events.Partitions {
	from := make([]events.Partitions, len(sources))
	_ = wanted.Each(func(partition uint8) error {
		least := -1
		for i := range sources {
			if sources[i].Has.Has(partition) && (least < 0 || from[i].Len() < from[least].Len()) {
				least = i
			}
		}
		if least >= 0 {
			from[least].Add(partition)
		}
		return nil
	})
	return from
}

// pacing has do rest as the pace demands, and stop before the disk is full.
func (c *copying) pacing(ctx context.Context, do func(key, value []byte) error) func(key, value []byte) error {
	const often = 1 << 12
	rows, began := 0, time.Now()
	return func(key, value []byte) error {
		if rows++; rows%often != 0 {
			return do(key, value)
		}
		if err := errors.Join(c.checkFree(), c.o.Pace.Rest(ctx, time.Since(began))); err != nil {
			return err
		}
		began = time.Now()
		return do(key, value)
	}
}

// newest is the greatest sequence that a copied store is at.
func (c *copying) newest() uint64 {
	if len(c.stores) == 0 {
		return 0
	}
	return slices.MaxFunc(c.stores, func(a, b *store.Store) int { return cmp.Compare(a.Cursor().Seq, b.Cursor().Seq) }).Cursor().Seq
}

// upTo builds what is left from the log, and folds what was copied, up to the sequence that last returns, which is asked once. It closes
// the stores, and returns the directories of their files.
func (c *copying) upTo(ctx context.Context, last func(seq uint64) (uint64, error)) (dirs []string, err error) {
	var seq uint64
	asked := func(least uint64) (uint64, error) {
		seq, err = last(least)
		return seq, err
	}
	if c.left.Len() > 0 {
		dir := c.live.FS().PathJoin(c.dir, "left")
		if err := c.build(ctx, c.subscribe, dir, c.left, asked); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	} else if _, err := asked(0); err != nil {
		return nil, err
	}
	for _, s := range c.stores {
		if err := c.foldUpTo(ctx, s, seq); err != nil {
			return nil, err
		}
		dirs = append(dirs, s.Dir())
	}
	return dirs, c.close()
}

// foldUpTo folds the log into a store, up to a sequence.
func (c *copying) foldUpTo(ctx context.Context, s *store.Store, last uint64) error {
	if s.Cursor().Seq >= last {
		return nil
	}
	sub, err := c.subscribe(s.Cursor(), kindsOf(s.Projection()))
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()
	for beyond := false; !beyond && s.Cursor().Seq < last; {
		if beyond, err = c.read(ctx, sub, last, s.Fold); err != nil {
			return err
		}
	}
	return nil
}

// close closes stores that are open. Their rows are on disk then.
func (c *copying) close() (err error) {
	for _, s := range c.stores {
		err = errors.Join(err, s.Close())
	}
	c.stores = nil
	return err
}
