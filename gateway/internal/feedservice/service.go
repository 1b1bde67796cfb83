// Package feedservice answers FeedService: pages of feeds (read_feed.go), less what their readers have seen (hide_seen.go), by time or by
// heat (feed_heat.go), and the pins of an owner or board (list_pins.go). It counts what is above an earlier page (count_newer.go), streams
// that number when it changes (watch_feed.go), and says why a pin is in a feed or not (explain_pin.go). It looks up pins by their names
// (batch_get_pins.go), and what a viewer has to do with pins and items (viewer_state.go).
package feedservice

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers FeedService.
type Service struct {
	*views.Views
	metrics *metrics.Metrics
	// expensiveReads bounds how many pages that read all that is ranked are made at a time.
	expensiveReads *admission.Budget
	logger         *slog.Logger
	// ranked is how many pins of a feed are ranked by heat.
	ranked int

	// Watchers wakes those who watch feeds.
	Watchers *feedwatch.Watchers
	// counts is a semaphore: how many watchers count at a time.
	counts chan struct{}
	// Pace is the least time between two counts of a watcher, and Silence after how long without a change it hears the last one again.
	Pace, Silence time.Duration
}

// New fails if the inbox is of another projection.
func New(v *views.Views, m *metrics.Metrics, expensiveReads *admission.Budget, logger *slog.Logger) (*Service, error) {
	ranked, err := ranked(v.Inbox.Live)
	return &Service{
		Views: v, metrics: m, expensiveReads: expensiveReads, logger: logger, ranked: ranked,
		Watchers: feedwatch.New(v.Log, v.Hub, v.Inbox.Live), counts: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		Pace: watchPace, Silence: watchSilence,
	}, err
}
