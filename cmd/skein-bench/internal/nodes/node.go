package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
)

const (
	// copies is how many nodes hold each partition.
	copies = 2
	// cacheBytes is what `skein serve` has by default for blocks of tables and for memtables.
	cacheBytes = 256 << 20
	// eventsPerEnvelope are in an envelope, envelopesPerFold envelopes are folded by a store before the next store folds them.
	eventsPerEnvelope, envelopesPerFold = events.MaxEnvelopeEvents, 20
)

// partitionsOfNodes returns the partitions of the nodes of a cluster, those with the fewest first.
func partitionsOfNodes(n int) []events.Partitions {
	sets := make([]events.Partitions, n)
	members, number := make([]placement.Member, n), make(map[string]int, n)
	for i := range members {
		members[i].Name = fmt.Sprintf("node-%d", i+1)
		number[members[i].Name] = i
	}
	table := placement.Place(members, copies)
	for p, names := range &table.Nodes {
		for _, name := range names {
			sets[number[name]].Add(uint8(p))
		}
	}
	slices.SortStableFunc(sets, func(a, b events.Partitions) int { return cmp.Compare(a.Len(), b.Len()) })
	return sets
}

// node is what a node of a cluster does with its log: it decodes all of it once, and folds it into the stores of all projections, which
// hold its partitions.
type node struct {
	dir     string
	cache   *store.Cache
	decoder *events.Decoder
	seq     uint64
	stores  []*store.Store
	// used is the processor time of decoding and folding, flushes, compactions and garbage collection meanwhile included.
	used time.Duration
}

// openNode opens an empty node with some partitions. A node without stores only decodes.
func openNode(parent string, parts *events.Partitions) (n *node, err error) {
	n = &node{decoder: events.NewDecoder(events.Cursor{}), cache: store.NewCache(cacheBytes)}
	if n.dir, err = os.MkdirTemp(parent, "node-"); err != nil {
		n.cache.Unref()
		return nil, err
	}
	if parts == nil {
		return n, nil
	}
	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{Dir: n.dir, Projection: p, Partitions: parts, Cache: n.cache})
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.stores = append(n.stores, s)
	}
	return n, nil
}

// read decodes and folds envelopes. The first has the time begin, each next one comes a step later.
func (n *node) fold(ctx context.Context, begin, step events.Micros, log [][]byte) error {
	before, err := measure.CPUTime()
	if err != nil {
		return err
	}
	for some := range slices.Chunk(log, envelopesPerFold) {
		envs := make([]*events.Envelope, len(some))
		for i, data := range some {
			n.seq++
			if envs[i], err = n.decoder.Decode(n.seq, begin+step*events.Micros(n.seq), data); err != nil {
				return err
			}
			if len(envs[i].Events) != eventsPerEnvelope {
				return fmt.Errorf("envelope %d has %d events, not %d", n.seq, len(envs[i].Events), eventsPerEnvelope)
			}
		}
		for _, s := range n.stores {
			if err := s.Fold(envs); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	after, err := measure.CPUTime()
	n.used += after - before
	return err
}

// flush writes what is in memory to disk, as part of folding.
func (n *node) flush() error {
	before, err := measure.CPUTime()
	if err != nil {
		return err
	}
	for _, s := range n.stores {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	after, err := measure.CPUTime()
	n.used += after - before
	return err
}

// bytes compacts the stores, closes them and returns the size of their files.
func (n *node) compactedBytes(ctx context.Context) (int64, error) {
	for _, s := range n.stores {
		if err := errors.Join(s.Compact(ctx), s.Close()); err != nil {
			return 0, err
		}
	}
	return measure.TreeBytes(n.dir)
}

// close closes the stores and removes them.
func (n *node) close() (err error) {
	for _, s := range n.stores {
		err = errors.Join(err, s.Close())
	}
	n.cache.Unref()
	return errors.Join(err, os.RemoveAll(n.dir))
}
