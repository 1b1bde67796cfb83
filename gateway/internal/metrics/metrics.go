package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Metrics are the metrics that methods count. docs/metrics.md lists all names.
type Metrics struct {
	rpcs         *prometheus.HistogramVec
	Accepted     prometheus.Counter
	Rejections   *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	Internal     *prometheus.CounterVec
	Feeds        feedPages
	Seen         seenQuestions
	Watches      watches
	TrendingRows prometheus.Histogram
}

// Observed has the parts of the server whose state is read when metrics are collected.
type Observed struct {
	Views       *views.Views
	Growth      *Growth
	Budgets     *admission.Budgets
	Connections *admission.Connections
	// Life ends when the server stops. Questions to the log end then.
	Life context.Context //nolint:containedctx // it belongs to the server, and no scrape passes it in
	// Version is the version of the program.
	Version string
}

// New registers all metrics of the gateway.
func New(reg prometheus.Registerer, o Observed) (*Metrics, error) {
	m := &Metrics{
		rpcs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_rpc_duration_seconds",
			Help: "Time from the decoded request to the answer, by method and Connect code.",
			Buckets: []float64{
				.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
			},
		}, []string{"method", "code"}),
		Accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_publish_events_total",
			Help: "Events that Publish appended to the log.",
		}),
		Rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_publish_rejections_total",
			Help: "Events that Publish refused, by reason.",
		}, []string{"reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_rpc_refusals_total",
			Help: "Calls that were refused, by reason.",
		}, []string{"reason"}),
		Internal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_rpc_internal_errors_total",
			Help: "Calls that failed by a fault of the service.",
		}, []string{"method"}),
		TrendingRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_trending_page_rows_read",
			Help:    "Rows that were read for one page of ListTrending.",
			Buckets: []float64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000},
		}),
	}
	inFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_rpc_in_flight",
		Help: "Calls under way, streams included.",
	}, func() float64 { return float64(o.Budgets.InFlight()) })
	watching := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_watch_streams",
		Help: "Streams of events to clients of Watch.",
	}, func() float64 { return float64(m.Watches.Streams.Load()) })
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": o.Version},
	})
	info.Set(1)
	collectors := append(cacheCollectors(o.Views.Graph.Projection()), []prometheus.Collector{
		m.rpcs, m.Accepted, m.Rejections, m.refusals, m.Internal, inFlight,
		budgetCollector{o.Budgets},
		watching, info,
		newStateCollector(o.Views), newLogCollector(o), newEngineCollector(o.Views),
		pagesCounter("inbox", &m.Feeds.Inbox), pagesCounter("merged", &m.Feeds.Merged),
		counterOf(prometheus.CounterOpts{
			Name: "skein_feed_outboxes_opened_total",
			Help: "Outboxes of authors and boards that were opened to make pages of feeds.",
		}, &m.Feeds.Outboxes),
		m.TrendingRows,
		questionsCounter("filter", &m.Seen.asked[ByFilter]), questionsCounter("feed", &m.Seen.asked[ByFeed]),
		questionsCounter("viewer_state", &m.Seen.asked[ByViewerState]),
		candidatesCounter("unseen", &m.Seen.unseen), candidatesCounter("seen", &m.Seen.seen),
		counterOf(prometheus.CounterOpts{
			Name: "skein_watch_events_total",
			Help: "Events that were sent to clients of Watch.",
		}, &m.Watches.Events),
		counterOf(prometheus.CounterOpts{
			Name: "skein_seen_months_read_total",
			Help: "Months of plays that were looked at to tell the seen from the unseen.",
		}, &m.Seen.months),
	}...)
	collectors = append(collectors, peerCollectors(o.Views.Peers)...)
	m.initRefusals()
	for _, c := range append(collectors, o.admissionCollectors()...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// RPC counts the calls of one method. OK observes successful calls. It is looked up only once,
// because they are frequent.
type RPC struct {
	vec  *prometheus.HistogramVec
	name string
	OK   prometheus.Observer
}

// RPC returns the counters of a method. name is as "skein.v1.GraphService/CheckFollows".
func (m *Metrics) RPC(name string) RPC {
	return RPC{vec: m.rpcs, name: name, OK: m.rpcs.WithLabelValues(name, "ok")}
}

// initRefusals exposes the counter of every reason as 0. The rate function of Prometheus sees the
// first refusal only if there was a 0 before.
func (m *Metrics) initRefusals() {
	for number := range skeinv1.Reason_name {
		if r := skeinv1.Reason(number); r != skeinv1.Reason_REASON_UNSPECIFIED {
			m.refusals.WithLabelValues(apierror.ReasonName(r))
		}
	}
}

// Refused counts a refused call, if its failure has a reason.
func (m *Metrics) Refused(f *apierror.Failure) {
	if f.Reason != skeinv1.Reason_REASON_UNSPECIFIED {
		m.refusals.WithLabelValues(apierror.ReasonName(f.Reason)).Inc()
	}
}

// Failed counts a call that was answered with an error.
func (r RPC) Failed(code connect.Code, took time.Duration) {
	r.vec.WithLabelValues(r.name, code.String()).Observe(took.Seconds())
}

// feedPages counts pages of feeds: those made from the inbox alone, those merged with outboxes, and
// the outboxes of the latter.
type feedPages struct{ Inbox, Merged, Outboxes atomic.Uint64 }

// Count counts a page.
func (f *feedPages) Count(p inbox.Page) {
	if p.OutboxesOpened == 0 {
		f.Inbox.Add(1)
		return
	}
	f.Merged.Add(1)
	f.Outboxes.Add(uint64(p.OutboxesOpened))
}

func pagesCounter(source string, n *atomic.Uint64) prometheus.Collector {
	return counterOf(prometheus.CounterOpts{
		Name:        "skein_feed_pages_total",
		Help:        "Pages of feeds by where they came from: the reader's inbox alone, or merged with outboxes.",
		ConstLabels: prometheus.Labels{"source": source},
	}, n)
}

// seenQuestions counts the questions to the seen store: who asked, about how many candidates, and
// how many months of plays were read.
type seenQuestions struct {
	asked                [3]atomic.Uint64 // indexed by askedBy
	unseen, seen, months atomic.Uint64
}

// askedBy says who asked the seen store.
type askedBy int

// The questions come from FilterSeen, from feeds that hide what was seen, and from
// BatchGetViewerState.
const (
	ByFilter askedBy = iota
	ByFeed
	ByViewerState
)

// Count counts one question. unseen is how many of the candidates were not seen.
func (q *seenQuestions) Count(by askedBy, candidates, unseen, months int) {
	q.asked[by].Add(1)
	q.unseen.Add(uint64(unseen))
	q.seen.Add(uint64(candidates - unseen))
	q.months.Add(uint64(months))
}

func questionsCounter(by string, n *atomic.Uint64) prometheus.Collector {
	return counterOf(prometheus.CounterOpts{
		Name:        "skein_seen_filters_total",
		Help:        "Questions to the seen store by who asked: FilterSeen, a feed that hides what was seen, or BatchGetViewerState.",
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

// watches counts the streams of Watch that are open, and the events that were sent on them.
type watches struct {
	Streams atomic.Int64
	Events  atomic.Uint64
}
