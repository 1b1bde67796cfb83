package gateway

import (
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// metrics are what /metrics says of this package. docs/metrics.md lists all names.
type metrics struct {
	rpcs       *prometheus.HistogramVec
	accepted   prometheus.Counter
	rejections *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	internal   *prometheus.CounterVec
	feeds      feedPages
	seen       seenQuestions
	watches    watches
	hotRows    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		rpcs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_rpc_duration_seconds",
			Help: "Time from the decoded request to the answer, by method and Connect code.",
			Buckets: []float64{
				.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
			},
		}, []string{"method", "code"}),
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_publish_events_total",
			Help: "Events that Publish appended to the log.",
		}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_publish_rejections_total",
			Help: "Events that Publish refused, by reason.",
		}, []string{"reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_rpc_refusals_total",
			Help: "Calls that were refused, by reason.",
		}, []string{"reason"}),
		internal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_rpc_internal_errors_total",
			Help: "Calls that failed by a fault of the service.",
		}, []string{"method"}),
		hotRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_trending_page_rows_read",
			Help:    "Rows that were read for one page of ListTrending.",
			Buckets: []float64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000},
		}),
	}
	inFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_rpc_in_flight",
		Help: "Calls under way, streams included.",
	}, func() float64 { return float64(s.budgets.underWay()) })
	watching := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_watch_streams",
		Help: "Streams of events to clients of Watch.",
	}, func() float64 { return float64(m.watches.streams.Load()) })
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": s.version},
	})
	info.Set(1)
	collectors := append(hotCollectors(s.graph.Projection()), []prometheus.Collector{
		m.rpcs, m.accepted, m.rejections, m.refusals, m.internal, inFlight,
		underWay{s},
		watching, info,
		newStateCollector(s), newLogCollector(s), newEngineCollector(s), pagesCounter("inbox", &m.feeds.inbox),
		pagesCounter("merged", &m.feeds.merged), counterOf(prometheus.CounterOpts{
			Name: "skein_feed_outboxes_opened_total",
			Help: "Outboxes of authors and boards that were opened to make pages of feeds.",
		}, &m.feeds.outboxes), m.hotRows,
		questionsCounter("filter", &m.seen.asked[byFilter]), questionsCounter("feed", &m.seen.asked[byFeed]),
		candidatesCounter("unseen", &m.seen.unseen), candidatesCounter("seen", &m.seen.seen),
		counterOf(prometheus.CounterOpts{
			Name: "skein_watch_events_total",
			Help: "Events that were sent to clients of Watch.",
		}, &m.watches.events),
		counterOf(prometheus.CounterOpts{
			Name: "skein_seen_months_read_total",
			Help: "Months of plays that were looked at to tell the seen from the unseen.",
		}, &m.seen.months),
	}...)
	m.begin()
	for _, c := range append(collectors, s.admissionCollectors()...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// admissionCollectors tell of connections, and of what is refused when there is too much.
func (s *Server) admissionCollectors() []prometheus.Collector {
	return []prometheus.Collector{
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_total",
			Help: "Connections that clients opened.",
		}, &s.accepted),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_handed_over_total",
			Help: "Connections that were left to net/http, because what came on them was no plain call.",
		}, &s.handedOver),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_evicted_total",
			Help: "Quiet connections that were closed to make room for others.",
		}, &s.crowdedOut),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_refused_total",
			Help: "Connections that were closed at once, because there were too many and each had a call that was worked on.",
		}, &s.unaccepted),
		counterOf(prometheus.CounterOpts{
			Name: "skein_shed_calls_total",
			Help: "Calls that were refused because those before them waited long for a processor.",
		}, &s.shed.refused),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_shed_ratio",
			Help: "The part of calls that is refused at present for that reason.",
		}, s.shed.part),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_connections",
			Help: "Connections that are open.",
		}, func() float64 { return float64(s.conns.count()) }),
	}
}

// hotCollectors tell of what the graph keeps in memory.
func hotCollectors(p projections.Projection) []prometheus.Collector {
	stats := func() (st graph.HotStats) {
		if g, ok := p.(interface{ HotStats() graph.HotStats }); ok {
			st = g.HotStats()
		}
		return st
	}
	questions := func(answer string, of func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "skein_follow_cache_lookups_total",
			Help:        "Questions how one user follows others, pair by pair, by what answered: memory or the store.",
			ConstLabels: prometheus.Labels{"answer": answer},
		}, func() float64 { return float64(of()) })
	}
	return []prometheus.Collector{
		questions("hit", func() uint64 { return stats().Hits }),
		questions("miss", func() uint64 { return stats().Misses }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "skein_follow_cache_evictions_total",
			Help: "Users whose follows made room for those of others.",
		}, func() float64 { return float64(stats().Evictions) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_follow_cache_bytes",
			Help: "Memory that follows take which are kept decoded.",
		}, func() float64 { return float64(stats().Bytes) }),
	}
}

// rpcObserver counts the calls of one method. That of good calls is found once.
type rpcObserver struct {
	vec  *prometheus.HistogramVec
	name string
	ok   prometheus.Observer
}

func (m *metrics) rpc(name string) rpcObserver {
	return rpcObserver{vec: m.rpcs, name: name, ok: m.rpcs.WithLabelValues(name, "ok")}
}

// begin shows counters of what should not happen before it does: a rate sees the first time only if there was a 0 before.
func (m *metrics) begin() {
	for number := range skeinv1.Reason_name {
		if r := skeinv1.Reason(number); r != skeinv1.Reason_REASON_UNSPECIFIED {
			m.refusals.WithLabelValues(apierror.ReasonName(r))
		}
	}
}

// refused counts a call that was refused for a reason that has a name.
func (m *metrics) refused(f *apierror.Failure) {
	if f.Reason != skeinv1.Reason_REASON_UNSPECIFIED {
		m.refusals.WithLabelValues(apierror.ReasonName(f.Reason)).Inc()
	}
}

func (o rpcObserver) failed(code connect.Code, took time.Duration) {
	o.vec.WithLabelValues(o.name, code.String()).Observe(took.Seconds())
}

// feedPages counts the pages of feeds, made from the inbox alone, or merged with so many outboxes.
type feedPages struct{ inbox, merged, outboxes atomic.Uint64 }

func (f *feedPages) count(p inbox.Page) {
	if p.Outboxes == 0 {
		f.inbox.Add(1)
		return
	}
	f.merged.Add(1)
	f.outboxes.Add(uint64(p.Outboxes))
}

func pagesCounter(source string, n *atomic.Uint64) prometheus.Collector {
	return counterOf(prometheus.CounterOpts{
		Name:        "skein_feed_pages_total",
		Help:        "Pages of feeds by where they came from: the reader's inbox alone, or merged with outboxes.",
		ConstLabels: prometheus.Labels{"source": source},
	}, n)
}

// seenQuestions counts what the seen store is asked: by whom, about how many candidates, over how many months.
type seenQuestions struct {
	asked                [2]atomic.Uint64 // by askedBy
	unseen, seen, months atomic.Uint64
}

// askedBy says who asked the seen store.
type askedBy int

const (
	byFilter askedBy = iota
	byFeed
)

func (q *seenQuestions) count(by askedBy, candidates, unseen, months int) {
	q.asked[by].Add(1)
	q.unseen.Add(uint64(unseen))
	q.seen.Add(uint64(candidates - unseen))
	q.months.Add(uint64(months))
}

func questionsCounter(by string, n *atomic.Uint64) prometheus.Collector {
	return counterOf(prometheus.CounterOpts{
		Name:        "skein_seen_filters_total",
		Help:        "Questions to the seen store by who asked: FilterSeen, or a feed that hides what was seen.",
		ConstLabels: prometheus.Labels{"by": by},
	}, n)
}

func candidatesCounter(answer string, n *atomic.Uint64) prometheus.Collector {
	return counterOf(prometheus.CounterOpts{
		Name:        "skein_seen_candidates_total",
		Help:        "Candidates of those questions by the answer.",
		ConstLabels: prometheus.Labels{"answer": answer},
	}, n)
}

func counterOf(o prometheus.CounterOpts, n *atomic.Uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(o, func() float64 { return float64(n.Load()) })
}

// stateCollector reads the states of the projections when they are asked for.
type stateCollector struct {
	s *Server

	lag, lagSeconds, position, head, disk, state, rejected *prometheus.Desc
}

func newStateCollector(s *Server) *stateCollector {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"projection"}, labels...), nil)
	}
	return &stateCollector{
		s:          s,
		lag:        of("skein_projection_lag_envelopes", "Envelopes of the log that the projection has still to fold."),
		lagSeconds: of("skein_projection_lag_seconds", "Age of the last event that queries see, while there are later ones."),
		position:   of("skein_projection_position", "Sequence of the log up to which queries see."),
		head:       of("skein_projection_log_head", "Last sequence that the projection knows the log to have."),
		disk:       of("skein_projection_disk_bytes", "Size of the files of the store."),
		state:      of("skein_projection_state", "1 for the state that the projection is in.", "state"),
		rejected:   of("skein_log_rejected_events_total", "Malformed events of the log that the projection skipped."),
	}
}

// Describe is part of prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lag, c.lagSeconds, c.position, c.head, c.disk, c.state, c.rejected} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	for _, store := range c.s.stores {
		st := c.s.statusOf(store)
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, st.Name)
		}
		gauge(c.lag, float64(st.Behind))
		gauge(c.lagSeconds, st.Lag(now).Seconds())
		gauge(c.position, float64(st.Cursor.Seq))
		gauge(c.head, float64(st.Head))
		gauge(c.disk, float64(st.DiskBytes))
		out <- prometheus.MustNewConstMetric(c.rejected, prometheus.CounterValue, float64(st.Rejects), st.Name)
		for state := projections.Starting; state <= projections.Held; state++ {
			is := 0.0
			if state == st.State {
				is = 1
			}
			out <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, is, st.Name, state.String())
		}
	}
}
