package service

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/store"
)

// foldMetrics are the metrics of folds. They are updated once for each piece of the log that a projection folds, not for each event.
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
			Help: "Age of the oldest envelope that became visible, each time that something did.",
			Buckets: []float64{
				.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
			},
		}, []string{"projection"}),
		envelopes:      counter("skein_fold_envelopes_total", "Envelopes of the log that the projection has folded."),
		events:         counter("skein_fold_events_total", "Events that the projection has folded."),
		commits:        counter("skein_fold_commits_total", "Commits of rows that the projection has made."),
		committedBytes: counter("skein_fold_committed_bytes_total", "Size of these commits."),
	}
	for _, c := range []prometheus.Collector{m.visibleSeconds, m.envelopes, m.events, m.commits, m.committedBytes} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// attach adds the metrics to the listener of a projection. The age of events counts only after the projection has caught up for the first
// time: before, it would measure how old the log is.
func (m *foldMetrics) attach(projection string, tracer trace.Tracer, l store.Listener) store.Listener {
	visible := m.visibleSeconds.WithLabelValues(projection)
	envelopes, evs := m.envelopes.WithLabelValues(projection), m.events.WithLabelValues(projection)
	commits, folded := m.commits.WithLabelValues(projection), m.committedBytes.WithLabelValues(projection)
	var live atomic.Bool
	changed := l.StateChanged
	l.StateChanged = func(s store.State, err error) {
		live.Store(s == store.Ready)
		changed(s, err)
	}
	l.Folded = func(i store.FoldInfo) {
		if i.Oldest > 0 && live.Load() {
			visible.Observe(max(0, time.Since(i.Oldest.Time()).Seconds()))
		}
		if tracer != nil && len(i.Traces) > 0 && live.Load() {
			addFoldSpans(tracer, projection, i)
		}
		envelopes.Add(float64(i.Envelopes))
		evs.Add(float64(i.Events))
		commits.Add(float64(i.Commits))
		folded.Add(float64(i.Bytes))
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
			Help: "Time until the log had an envelope on disk, or it was given up.",
			Buckets: []float64{
				.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			},
		}, []string{"result"}),
		events: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_log_append_events",
			Help:    "Events of an envelope: what was published while the one before was under way.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_log_append_attempts_total",
			Help: "Times that an envelope was sent to the log: more than there are envelopes if there was trouble.",
		}),
	}
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

// listener returns a listener that counts envelopes.
func (m *appendMetrics) listener() eventlog.PublisherListener {
	ok, failed := m.seconds.WithLabelValues("ok"), m.seconds.WithLabelValues("failed")
	return eventlog.PublisherListener{Appended: func(i eventlog.AppendInfo) {
		took := ok
		if i.Err != nil {
			took = failed
		}
		took.Observe(i.Latency.Seconds())
		m.events.Observe(float64(i.Events))
		m.attempts.Add(float64(i.Attempts))
	}}
}
