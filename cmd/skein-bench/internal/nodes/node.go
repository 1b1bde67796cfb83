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
	// copies is how many nodes hold each partition, if the cluster has that many nodes.
	copies = 2
	// cacheBytes is the memory for blocks of tables and for memtables, as much as `skein serve` has
	// by default.
	cacheBytes = 256 << 20
	// eventsPerEnvelope is how many events an envelope has. An envelope is a group of events that
	// the log writes together.
	eventsPerEnvelope = events.MaxEnvelopeEvents
	// envelopesPerFold is how many envelopes a store folds before the next store folds the same
	// ones.
	envelopesPerFold = 20
)

// partitionsOfNodes returns the partitions of each node of a cluster of n nodes. The node with the
// fewest partitions is first.
func partitionsOfNodes(n int) []events.Partitions {
	members := make([]placement.Member, n)
	indexOf := make(map[string]int, n)
	for i := range members {
		members[i].Name = fmt.Sprintf("node-%d", i+1)
		indexOf[members[i].Name] = i
	}

	sets := make([]events.Partitions, n)
	table := placement.Place(members, copies)
	for p, names := range &table.Nodes {
		for _, name := range names {
			sets[indexOf[name]].Add(uint8(p))
		}
	}

	slices.SortStableFunc(sets, func(a, b events.Partitions) int { return cmp.Compare(a.Len(), b.Len()) })
	return sets
}

// node does what a node of a cluster does with the log. It decodes all envelopes once, and folds
// them into the stores of all projections. The stores keep only the rows of the partitions of the
// node.
type node struct {
	dir     string
	cache   *store.Cache
	decoder *events.Decoder
	// seq is the sequence of the last envelope that was decoded.
	seq    uint64
	stores []*store.Store
	// processorTime is the processor time that all threads have used while the node decoded, folded
	// and flushed. It includes compactions and garbage collection in that time.
	processorTime time.Duration
}

// openNode opens an empty node with some partitions, in a new directory below parent. If partitions
// is nil, the node has no stores, and only decodes.
func openNode(parent string, partitions *events.Partitions) (n *node, err error) {
	n = &node{decoder: events.NewDecoder(events.Cursor{}), cache: store.NewCache(cacheBytes)}
	n.dir, err = os.MkdirTemp(parent, "node-")
	if err != nil {
		n.cache.Unref()
		return nil, err
	}
	if partitions == nil {
		return n, nil
	}

	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{Dir: n.dir, Projection: p, Partitions: partitions, Cache: n.cache})
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.stores = append(n.stores, s)
	}
	return n, nil
}

// fold decodes and folds encoded envelopes. Log time begins at begin, and each envelope of the node
// is a step later than the one before.
func (n *node) fold(ctx context.Context, begin, step events.Micros, encoded [][]byte) error {
	before, err := measure.CPUTime()
	if err != nil {
		return err
	}

	for chunk := range slices.Chunk(encoded, envelopesPerFold) {
		envs := make([]*events.Envelope, len(chunk))
		for i, data := range chunk {
			n.seq++
			envs[i], err = n.decoder.Decode(n.seq, begin+step*events.Micros(n.seq), data)
			if err != nil {
				return err
			}
			// An event that the decoder rejects would make the node look fast.
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
	n.processorTime += after - before
	return err
}

// flush writes what the stores have in memory to disk. Its time counts as time of folding.
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
	n.processorTime += after - before
	return err
}

// compactedBytes compacts the stores, closes them and returns the size of their files.
func (n *node) compactedBytes(ctx context.Context) (int64, error) {
	for _, s := range n.stores {
		if err := errors.Join(s.Compact(ctx), s.Close()); err != nil {
			return 0, err
		}
	}
	return measure.TreeBytes(n.dir)
}

// close closes the stores and removes their files.
func (n *node) close() (err error) {
	for _, s := range n.stores {
		err = errors.Join(err, s.Close())
	}
	n.cache.Unref()
	return errors.Join(err, os.RemoveAll(n.dir))
}
