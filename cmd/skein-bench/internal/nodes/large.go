package nodes

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

const (
	// largeNodes is how many nodes the large cluster has. It has every partition on several nodes,
	// so each node has a 96th of the rows.
	largeNodes = 96 * copies
	// largeUsers and largeItems are how many users and items the product has. largeRate is how many
	// events per second its log gets at a peak. They are the figures of docs/sizing.md for 500
	// million daily users.
	largeUsers, largeItems, largeRate = 1_000_000_000, 100_000_000, 1_620_000
	// envelopesPerRead is how many envelopes are made at a time, before the node folds them and is
	// measured.
	envelopesPerRead = 500
)

// largeClusterReader reads the log of a large product, and folds the events of its partitions.
type largeClusterReader struct {
	name string
	// partitions is nil for a reader that decodes the log and folds nothing.
	partitions *events.Partitions
}

// measureLargeCluster measures one of many nodes, once with a log without event ids and once with
// one that has them. The log is too large to be kept, so it is made while it is read.
func measureLargeCluster(ctx context.Context, b *measure.Bench) error {
	sets := partitionsOfNodes(largeNodes)
	median := sets[largeNodes/2]
	readers := []largeClusterReader{
		{"decoded only", nil},
		{"node without partitions", &events.Partitions{}},
		{fmt.Sprintf("node of %d partitions", median.Len()), &median},
	}
	note := fmt.Sprintf("%d events in envelopes of %d, of %s users and %s items, at the proportions of docs/sizing.md, with times of a peak "+
		"of %s events a second; %d nodes hold %d to %d partitions, this one the median. By processor time: all threads, flushes, "+
		"compactions and garbage collection included, making the log excluded.", b.Opts.LogEvents, eventsPerEnvelope,
		measure.FormatFigure(largeUsers), measure.FormatFigure(largeItems), measure.FormatFigure(largeRate), largeNodes, sets[0].Len(),
		sets[largeNodes-1].Len())
	for _, withEventIDs := range []bool{false, true} {
		id := "nodes-large"
		title := "log of a large product, read on one core"
		if withEventIDs {
			id += "-ids"
			title += ", with event ids"
			note = "" // the note of the row without event ids is enough
		}
		rate := b.AddRow(id, title, "events/s", note)
		memory := b.AddRow(id+"-memory", title+": resident memory", "MB", "")
		disk := b.AddRow(id+"-bytes", title+": stores, compacted", "MB", "")

		var contenders []measure.Contender
		for _, reader := range readers {
			memory.SeriesOf(reader.name) // adds the series in the order of the table
			contenders = append(contenders, measure.Contender{
				Name: reader.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
					m, err := reader.measure(ctx, b, withEventIDs)
					memory.SeriesOf(reader.name).Add(measure.Measurement{Value: m.memory / 1e6})
					if reader.partitions != nil {
						disk.SeriesOf(reader.name).Add(measure.Measurement{Value: m.bytes / 1e6})
					}
					return measure.Measurement{Value: m.rate}, err
				},
			})
		}
		if err := b.MeasureInTurn(ctx, rate, contenders...); err != nil {
			return err
		}

		for _, reader := range readers {
			rate.Compare(reader.name, "", 0, false)
			memory.Compare(reader.name, "", 0, true)
		}
		for _, s := range disk.Series {
			disk.Compare(s.Name, "", 0, true)
		}
	}
	return nil
}

// largeClusterFigures has the figures of one reader: events per second of one core, bytes of the
// stores on disk, and the greatest resident memory in bytes.
type largeClusterFigures struct{ rate, bytes, memory float64 }

// measure makes a log and reads it.
func (l largeClusterReader) measure(ctx context.Context, b *measure.Bench, withEventIDs bool) (m largeClusterFigures, err error) {
	n, err := openNode(b.Dir, l.partitions)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, n.close()) }()

	g := productLog{
		users: largeUsers, items: largeItems, withEventIDs: withEventIDs,
		mix: eventMix{plays: 500, likes: 50, follows: 10, pins: 1},
	}.newGenerator(43)
	log := make([][]byte, envelopesPerRead)
	debug.FreeOSMemory() // memory of earlier measurements must not count
	count := max(1, b.Opts.LogEvents/eventsPerEnvelope)
	for done := 0; done < count; done += len(log) {
		log = log[:min(len(log), count-done)]
		for i := range log {
			log[i] = g.envelope()
		}
		if err := n.fold(ctx, workload.FirstFollow, eventsPerEnvelope*1_000_000/largeRate, log); err != nil {
			return m, err
		}
		if resident, ok := measure.ProcessStatus("self", "VmRSS:"); ok {
			m.memory = max(m.memory, resident)
		}
	}

	if err := n.flush(); err != nil {
		return m, err
	}
	m.rate = float64(count*eventsPerEnvelope) / n.processorTime.Seconds()
	bytes, err := n.compactedBytes(ctx)
	m.bytes = float64(bytes)
	return m, err
}
