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
	// largeNodes is how many nodes the large cluster has: each holds one of 96 parts of the rows.
	largeNodes = 96 * copies
	// largeUsers and largeItems are those of the product, whose log has largeRate events a second at its peak: 500 million daily users of
	// docs/sizing.md.
	largeUsers, largeItems, largeRate = 1_000_000_000, 100_000_000, 1_620_000
	// envelopesPerRead is how many envelopes are made at once, before they are measured.
	envelopesPerRead = 500
)

// largeClusterReader is a reader of the log of a large product.
type largeClusterReader struct {
	name string
	// parts are nil for a reader that only decodes.
	parts *events.Partitions
}

// large measures one of many nodes. Nothing of the log is kept: it is made on the way.
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
		measure.Figure(largeUsers), measure.Figure(largeItems), measure.Figure(largeRate), largeNodes, sets[0].Len(),
		sets[largeNodes-1].Len())
	for _, ids := range []bool{false, true} {
		id, title := "nodes-large", "log of a large product, read on one core"
		if ids {
			id, title, note = id+"-ids", title+", with event ids", ""
		}
		rate := b.Row(id, title, "events/s", note)
		memory := b.Row(id+"-memory", title+": resident memory", "MB", "")
		disk := b.Row(id+"-bytes", title+": stores, compacted", "MB", "")
		var contenders []measure.Contender
		for _, reader := range readers {
			memory.SeriesOf(reader.name)
			contenders = append(contenders, measure.Contender{
				Name: reader.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
					m, err := reader.measure(ctx, b, ids)
					memory.SeriesOf(reader.name).Add(measure.Measurement{Value: m.memory / 1e6})
					if reader.parts != nil {
						disk.SeriesOf(reader.name).Add(measure.Measurement{Value: m.bytes / 1e6})
					}
					return measure.Measurement{Value: m.rate}, err
				},
			})
		}
		if err := b.Alternate(ctx, rate, contenders...); err != nil {
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

// largeFigures are those of one reading: events a second of a core, bytes of the stores, and resident memory.
type largeFigures struct{ rate, bytes, memory float64 }

func (l largeClusterReader) measure(ctx context.Context, b *measure.Bench, ids bool) (m largeFigures, err error) {
	n, err := openNode(b.Dir, l.parts)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	g := productLog{
		users: largeUsers, items: largeItems, withEventIDs: ids,
		mix: eventMix{plays: 500, likes: 50, follows: 10, pins: 1},
	}.newGenerator(43)
	log := make([][]byte, envelopesPerRead)
	debug.FreeOSMemory() // what came before is no part of this
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
	m.rate = float64(count*eventsPerEnvelope) / n.used.Seconds()
	bytes, err := n.compactedBytes(ctx)
	m.bytes = float64(bytes)
	return m, err
}
