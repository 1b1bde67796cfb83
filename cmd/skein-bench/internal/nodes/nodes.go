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

// clusterSizes returns the numbers of nodes of the clusters that are compared. The first one is 1:
// a node that holds all rows.
func clusterSizes() []int { return []int{1, 3, 5, 8} }

const (
	day = events.Micros(24 * 3600 * 1_000_000)
	// logDays is how many days of log time the log of the small clusters has.
	logDays = 10
	// flushes is how often the stores are flushed while the log is folded. A live node flushes
	// every minute.
	flushes = 4
	// rowShareTolerance is by how much the share of the rows that a node has may be above its even
	// share.
	rowShareTolerance = 0.05
	// maxTimeOf3 and maxTimeOf8 are the targets for the processor time of a node in a cluster of
	// three and of eight, as a share of the time of a node that holds all rows.
	maxTimeOf3, maxTimeOf8 = 0.75, 0.35
)

// MeasureNodes measures what a node costs, in a very large cluster, and in small clusters compared
// with one node that holds all rows.
func MeasureNodes(ctx context.Context, b *measure.Bench) error {
	if err := measureLargeCluster(ctx, b); err != nil {
		return err
	}
	return measureSmallClusters(ctx, b)
}

// smallNode is a node of a small cluster.
type smallNode struct {
	// nodes is how many nodes the cluster has.
	nodes int
	// name is the name of the series.
	name       string
	partitions events.Partitions
}

// listSmallNodes returns the nodes that are measured: those with the fewest, with the median and
// with the most partitions of each cluster.
func listSmallNodes() (list []smallNode) {
	for _, n := range clusterSizes() {
		sets := partitionsOfNodes(n)
		if n == 1 {
			list = append(list, smallNode{n, "1 node", sets[0]})
			continue
		}
		for _, rank := range []struct {
			name  string
			index int
		}{{"smallest", 0}, {"median", n / 2}, {"largest", n - 1}} {
			list = append(list, smallNode{n, fmt.Sprintf("%s of %d", rank.name, n), sets[rank.index]})
		}
	}
	return list
}

// measureSmallClusters measures bytes and processor time of nodes in small clusters. All of them
// read the same log.
func measureSmallClusters(ctx context.Context, b *measure.Bench) error {
	count := max(1, b.Opts.Replayed/eventsPerEnvelope)
	b.Logf("a log of %d events", count*eventsPerEnvelope)
	g := productLog{
		users: max(100, b.Opts.Replayed/10), items: max(100, b.Opts.Replayed/4),
		mix: eventMix{plays: 52, likes: 15, follows: 20, pins: 8, scores: 5},
	}.newGenerator(41)
	log := make([][]byte, count)
	for i := range log {
		log[i] = g.envelope()
	}

	list := listSmallNodes()
	bytes := b.AddRow("nodes-bytes", "bytes of a node, two copies", "MB", fmt.Sprintf("all four stores after a log of %d events, compacted. "+
		"Of 100 events 52 are plays, 20 follows, 15 likes, 8 pins and 5 scores, of %d users and %d items, over %d "+
		"days.", count*eventsPerEnvelope, g.users, g.items, logDays))
	fold := b.AddRow("nodes-fold", "processor time of a node an event of the log", "µs", "the whole log is decoded, and folded live by the "+
		"four stores; all threads, flushes, compactions and garbage collection included.")
	var contenders []measure.Contender
	for _, s := range list {
		fold.SeriesOf(s.name) // adds the series in the order of the table
		contenders = append(contenders, measure.Contender{Name: s.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			size, microsPerEvent, err := s.measure(ctx, b, log)
			fold.SeriesOf(s.name).Add(measure.Measurement{Value: microsPerEvent})
			return measure.Measurement{Value: size / 1e6}, err
		}})
	}
	if err := b.MeasureInTurn(ctx, bytes, contenders...); err != nil {
		return err
	}
	compare(list, bytes, fold)
	return nil
}

// measure folds a log, and returns the size of the stores in bytes, and the processor time per
// event in microseconds.
func (s smallNode) measure(ctx context.Context, b *measure.Bench, log [][]byte) (size, microsPerEvent float64, err error) {
	n, err := openNode(b.Dir, &s.partitions)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	runtime.GC() // garbage of the node before must not count

	step := logDays * day / events.Micros(len(log))
	// After a single flush, Pebble would move the tables to the last level unchanged. A store that
	// has run for long has compacted its tables, so several flushes are needed.
	for part := range slices.Chunk(log, (len(log)+flushes-1)/flushes) {
		if err := errors.Join(n.fold(ctx, workload.FirstFollow, step, part), n.flush()); err != nil {
			return 0, 0, err
		}
	}

	microsPerEvent = measure.Micros(n.processorTime) / float64(len(log)*eventsPerEnvelope)
	bytes, err := n.compactedBytes(ctx)
	return float64(bytes), microsPerEvent, err
}

// compare compares all nodes with the one that holds all rows. Only median nodes have targets.
func compare(list []smallNode, bytes, fold *measure.Row) {
	single := list[0].name
	bytes.Compare(single, "", 0, true)
	fold.Compare(single, "", 0, true)
	for i, s := range list {
		if s.name == single {
			continue
		}
		bytesTarget := 0.0
		timeTarget := 0.0
		// The first node is followed by the smallest, the median and the largest node of each
		// cluster.
		isMedian := i%3 == 2
		if isMedian {
			bytesTarget = copies/float64(s.nodes) + rowShareTolerance
			timeTarget = map[int]float64{3: maxTimeOf3, 8: maxTimeOf8}[s.nodes]
		}
		bytes.Compare(s.name, single, bytesTarget, true)
		fold.Compare(s.name, single, timeTarget, true)
	}
}
