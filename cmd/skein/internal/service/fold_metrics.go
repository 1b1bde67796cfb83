package service

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/store"
)

// foldMetrics are the metrics of folds. They change once for each batch of envelopes that a
// projection folds, and not for each event, because a fold must stay cheap.
type foldMetrics struct {
	visibleSeconds                             *prometheus.HistogramVec
	envelopes, events, commits, committedBytes *prometheus.CounterVec
}

func newFoldMetrics(reg prometheus.Registerer) (*foldMetrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"projection"})
	}
	m := &foldMetrics{
		visibleSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_publish_visible_seconds",
			Help: "Age of the oldest envelope among those that became visible in reads at the same time.",
			Buckets: []float64{
				.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
			},
		}, []string{"projection"}),
		envelopes:      counter("skein_fold_envelopes_total", "Envelopes of the log that the projection has folded."),
		events:         counter("skein_fold_events_total", "Events that the projection has folded."),
		commits:        counter("skein_fold_commits_total", "Commits that the projection has made to its store."),
		committedBytes: counter("skein_fold_committed_bytes_total", "Bytes in the commits of the projection."),
	}
	for _, c := range []prometheus.Collector{m.visibleSeconds, m.envelopes, m.events, m.commits, m.committedBytes} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// attach adds to the listener of a projection what updates the metrics and traces the folds. The
// age of envelopes and the spans of folds count only while the projection is ready. While it
// catches up, they would measure how old the log is.
func (m *foldMetrics) attach(projection string, tracer trace.Tracer, l store.Listener) store.Listener {
	// Looking a metric up by its label takes a lock and a hash, so look it up once.
	visibleSeconds := m.visibleSeconds.WithLabelValues(projection)
	envelopes := m.envelopes.WithLabelValues(projection)
	events := m.events.WithLabelValues(projection)
	commits := m.commits.WithLabelValues(projection)
	committedBytes := m.committedBytes.WithLabelValues(projection)

	var isReady atomic.Bool
	stateChanged := l.StateChanged
	l.StateChanged = func(state store.State, err error) {
		isReady.Store(state == store.Ready)
		stateChanged(state, err)
	}
	l.Folded = func(i store.FoldInfo) {
		if isReady.Load() {
			if i.Oldest > 0 {
				// The clock of the process that published may be ahead of the clock of this one.
				visibleSeconds.Observe(max(0, time.Since(i.Oldest.Time()).Seconds()))
			}
			if tracer != nil && len(i.Traces) > 0 {
				addFoldSpans(tracer, projection, i)
			}
		}
		envelopes.Add(float64(i.Envelopes))
		events.Add(float64(i.Events))
		commits.Add(float64(i.Commits))
		committedBytes.Add(float64(i.Bytes))
	}
	return l
}

// appendMetrics are the metrics of the envelopes that the process appends to the log.
type appendMetrics struct {
	seconds  *prometheus.HistogramVec
	events   prometheus.Histogram
	attempts prometheus.Counter
}

func newAppendMetrics(reg prometheus.Registerer) (*appendMetrics, error) {
	m := &appendMetrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_log_append_duration_seconds",
			Help: "Time until the log had an envelope on disk, or the publisher gave up.",
			Buckets: []float64{
				.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			},
		}, []string{"result"}),
		events: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_log_append_events",
			Help:    "Events in an envelope: those that were published while the previous envelope was being written.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_log_append_attempts_total",
			Help: "Times that an envelope was sent to the log, retries included.",
		}),
	}
	// Both series must exist before the first envelope, so that a rate over them is 0 and not
	// absent.
	for _, result := range []string{"ok", "failed"} {
		m.seconds.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{m.seconds, m.events, m.attempts} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// listener returns the listener of the publisher that updates the metrics.
func (m *appendMetrics) listener() eventlog.PublisherListener {
	okSeconds := m.seconds.WithLabelValues("ok")
	failedSeconds := m.seconds.WithLabelValues("failed")
	return eventlog.PublisherListener{Appended: func(i eventlog.AppendInfo) {
		seconds := okSeconds
		if i.Err != nil {
			seconds = failedSeconds
		}
		seconds.Observe(i.Latency.Seconds())
		m.events.Observe(float64(i.Events))
		m.attempts.Add(float64(i.Attempts))
	}}
}
