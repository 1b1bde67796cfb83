package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// stateCollector reads the states of the projections when metrics are collected.
type stateCollector struct {
	s *views.Views

	lag, lagSeconds, position, disk, state, rejected *prometheus.Desc
}

func newStateCollector(s *views.Views) *stateCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"projection"}, labels...), nil)
	}
	return &stateCollector{
		s:          s,
		lag:        desc("skein_projection_lag_envelopes", "Envelopes of the log that the projection has still to fold."),
		lagSeconds: desc("skein_projection_lag_seconds", "Age of the last event that queries see, while there are later ones."),
		position:   desc("skein_projection_position", "Sequence of the log up to which queries see."),
		disk:       desc("skein_projection_disk_bytes", "Size of the files of the store."),
		state:      desc("skein_projection_state", "1 for the state that the projection is in.", "state"),
		rejected:   desc("skein_log_rejected_events_total", "Malformed events of the log that the projection skipped."),
	}
}

// Describe is part of prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lag, c.lagSeconds, c.position, c.disk, c.state, c.rejected} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	for _, projection := range c.s.All {
		st := c.s.StatusOf(projection)
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, st.Name)
		}
		gauge(c.lag, float64(st.Behind))
		gauge(c.lagSeconds, st.Lag(now).Seconds())
		gauge(c.position, float64(st.Cursor.Seq))
		gauge(c.disk, float64(st.DiskBytes))
		out <- prometheus.MustNewConstMetric(c.rejected, prometheus.CounterValue, float64(st.Rejects), st.Name)
		for state := store.Starting; state <= store.Held; state++ {
			value := 0.0
			if state == st.State {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, st.Name, state.String())
		}
	}
}

// cacheCollectors returns the collectors about the in-memory caches of queries, which p reports.
// They are 0 if it reports none.
func cacheCollectors(p projections.Projection) []prometheus.Collector {
	stats := func() (st querycache.Stats) {
		if g, ok := p.(interface{ CacheStats() querycache.Stats }); ok {
			st = g.CacheStats()
		}
		return st
	}
	lookups := func(answer string, count func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "skein_query_cache_lookups_total",
			Help:        "Questions how one user follows others, pair by pair, by what answered: memory or the store.",
			ConstLabels: prometheus.Labels{"answer": answer},
		}, func() float64 { return float64(count()) })
	}
	return []prometheus.Collector{
		lookups("hit", func() uint64 { return stats().Hits }),
		lookups("miss", func() uint64 { return stats().Misses }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "skein_query_cache_evictions_total",
			Help: "Users whose follows, and outboxes whose newest pins, made room for others.",
		}, func() float64 { return float64(stats().Evictions) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_query_cache_bytes",
			Help: "Memory that decoded follows, the newest pins of outboxes and inboxes take.",
		}, func() float64 { return float64(stats().Bytes) }),
	}
}
