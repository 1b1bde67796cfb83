package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/store"
)

// engineCollector reads the storage engine of every projection when metrics are collected. When
// another generation begins to serve, its counters start from zero.
type engineCollector struct {
	s       *views.Views
	figures []engineFigure
}

// engineFigure is one time series of a metric.
type engineFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// labels are the values of the labels after the name of the projection.
	labels []string
	value  func(store.Engine) float64
}

func newEngineCollector(s *views.Views) *engineCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("skein_pebble_"+name, help, append([]string{"projection"}, labels...), nil)
	}
	gauge := func(d *prometheus.Desc, value func(store.Engine) float64) engineFigure {
		return engineFigure{d, prometheus.GaugeValue, nil, value}
	}
	count := func(d *prometheus.Desc, value func(store.Engine) uint64, labels ...string) engineFigure {
		return engineFigure{d, prometheus.CounterValue, labels, func(e store.Engine) float64 { return float64(value(e)) }}
	}
	written := desc("written_bytes_total", "Bytes of tables that were written, by what wrote them.", "by")
	tables := desc("table_cache_lookups_total", "Lookups of open tables, by whether the table was open.", "answer")
	return &engineCollector{s: s, figures: []engineFigure{
		gauge(desc("memtable_bytes", "Rows in memory that are not yet in a table."),
			func(e store.Engine) float64 { return float64(e.MemtableBytes) }),
		gauge(desc("sublevels", "Tables of level 0 that one lookup may ask."),
			func(e store.Engine) float64 { return float64(e.Sublevels) }),
		gauge(desc("read_amplification", "Tables of all levels that one lookup may ask."),
			func(e store.Engine) float64 { return float64(e.ReadAmplification) }),
		gauge(desc("compaction_debt_bytes", "Bytes that are to be compacted until the tables are in order."),
			func(e store.Engine) float64 { return float64(e.CompactionDebt) }),
		gauge(desc("compactions_running", "Compactions that are under way."),
			func(e store.Engine) float64 { return float64(e.Compacting) }),
		gauge(desc("snapshots", "States of the rows that are held for readers."),
			func(e store.Engine) float64 { return float64(e.Snapshots) }),
		count(desc("flushes_total", "Flushes of memtables."), func(e store.Engine) uint64 { return e.Flushes }),
		count(desc("compactions_total", "Compactions."), func(e store.Engine) uint64 { return e.Compactions }),
		count(written, func(e store.Engine) uint64 { return e.FlushedBytes }, "flush"),
		count(written, func(e store.Engine) uint64 { return e.CompactedBytes }, "compaction"),
		count(tables, func(e store.Engine) uint64 { return e.TableHits }, "hit"),
		count(tables, func(e store.Engine) uint64 { return e.TableMisses }, "miss"),
		count(desc("slow_disk_total", "Operations that took the disk seconds."),
			func(e store.Engine) uint64 { return e.SlowDisk }),
		count(desc("fold_waits_total", "Times that the fold began to wait for flushes and compactions."),
			func(e store.Engine) uint64 { return e.Waits }),
	}}
}

// Describe is part of prometheus.Collector.
func (c *engineCollector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		out <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (c *engineCollector) Collect(out chan<- prometheus.Metric) {
	for _, store := range c.s.All {
		e, ok := store.Engine()
		if !ok { // no generation is open
			continue
		}
		for _, f := range c.figures {
			out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(e), append([]string{store.Name()}, f.labels...)...)
		}
	}
}
