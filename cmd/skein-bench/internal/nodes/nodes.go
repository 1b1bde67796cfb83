package nodes

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

// clusterSizes are the numbers of nodes whose costs are compared: with the first, one node holds everything.
func clusterSizes() []int { return []int{1, 3, 5, 8} }

const (
	day = events.Micros(24 * 3600 * 1_000_000)
	// logDays is over how long the log of the small clusters is spread.
	logDays = 10
	// flushes is how often the stores are flushed while the log is folded. A live node does so every minute.
	flushes = 4
	// rowShareTolerance is how far the share of a node may be above that of its ideal part of the rows.
	rowShareTolerance = 0.05
	// foldedAtMost3 and foldedAtMost8 are what a node of three and of eight may use of the processor time of one that holds everything.
	foldedAtMost3, foldedAtMost8 = 0.75, 0.35
)

// Nodes measures what a node costs: in small clusters against one node that holds everything, and in a very large one.
func Nodes(ctx context.Context, b *measure.Bench) error {
	if err := measureLargeCluster(ctx, b); err != nil {
		return err
	}
	return measureSmallClusters(ctx, b)
}

// smallNode is a node of a small cluster that is measured.
type smallNode struct {
	nodes int
	name  string
	parts events.Partitions
}

// listSmallNodes are the smallest, the median and the largest node of each cluster.
func listSmallNodes() (list []smallNode) {
	for _, n := range clusterSizes() {
		sets := partitionsOfNodes(n)
		if n == 1 {
			list = append(list, smallNode{n, "1 node", sets[0]})
			continue
		}
		for _, which := range []struct {
			name string
			at   int
		}{{"smallest", 0}, {"median", n / 2}, {"largest", n - 1}} {
			list = append(list, smallNode{n, fmt.Sprintf("%s of %d", which.name, n), sets[which.at]})
		}
	}
	return list
}

// small measures bytes and processor time of nodes of small clusters, on one log.
func measureSmallClusters(ctx context.Context, b *measure.Bench) error {
	count := max(1, b.Opts.Replayed/eventsPerEnvelope)
	b.Say("a log of %d events", count*eventsPerEnvelope)
	g := productLog{
		users: max(100, b.Opts.Replayed/10), items: max(100, b.Opts.Replayed/4),
		mix: eventMix{plays: 52, likes: 15, follows: 20, pins: 8, scores: 5},
	}.newGenerator(41)
	log := make([][]byte, count)
	for i := range log {
		log[i] = g.envelope()
	}
	list := listSmallNodes()
	bytes := b.Row("nodes-bytes", "bytes of a node, two copies", "MB", fmt.Sprintf("all four stores after a log of %d events, compacted. "+
		"Of 100 events 52 are plays, 20 follows, 15 likes, 8 pins and 5 scores, of %d users and %d items, over %d "+
		"days.", count*eventsPerEnvelope, g.users, g.items, logDays))
	fold := b.Row("nodes-fold", "processor time of a node an event of the log", "µs", "the whole log is decoded, and folded live by the "+
		"four stores; all threads, flushes, compactions and garbage collection included.")
	var contenders []measure.Contender
	for _, s := range list {
		fold.SeriesOf(s.name)
		contenders = append(contenders, measure.Contender{Name: s.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			size, used, err := s.measure(ctx, b, log)
			fold.SeriesOf(s.name).Add(measure.Measurement{Value: used})
			return measure.Measurement{Value: size / 1e6}, err
		}})
	}
	if err := b.Alternate(ctx, bytes, contenders...); err != nil {
		return err
	}
	compare(list, bytes, fold)
	return nil
}

// measure folds a log, and returns the bytes of the stores and the microseconds of a core an event.
func (s smallNode) measure(ctx context.Context, b *measure.Bench, log [][]byte) (size, used float64, err error) {
	n, err := openNode(b.Dir, &s.parts)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	runtime.GC() // what the node before has left behind is no part of this one
	step := logDays * day / events.Micros(len(log))
	// The tables of one flush alone would be moved to the last level as they are, which is not how a store is in the long run.
	for part := range slices.Chunk(log, (len(log)+flushes-1)/flushes) {
		if err := errors.Join(n.fold(ctx, workload.FirstFollow, step, part), n.flush()); err != nil {
			return 0, 0, err
		}
	}
	used = measure.Micros(n.used) / float64(len(log)*eventsPerEnvelope)
	bytes, err := n.compactedBytes(ctx)
	return float64(bytes), used, err
}

// compare compares nodes with one that holds everything.
func compare(list []smallNode, bytes, fold *measure.Row) {
	one := list[0].name
	bytes.Compare(one, "", 0, true)
	fold.Compare(one, "", 0, true)
	for i, s := range list {
		if s.name == one {
			continue
		}
		target, folded := 0.0, 0.0
		if i%3 == 2 { // the median
			target = copies/float64(s.nodes) + rowShareTolerance
			folded = map[int]float64{3: foldedAtMost3, 8: foldedAtMost8}[s.nodes]
		}
		bytes.Compare(s.name, one, target, true)
		fold.Compare(s.name, one, folded, true)
	}
}
