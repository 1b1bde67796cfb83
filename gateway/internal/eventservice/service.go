// Package eventservice answers EventService.
//
// Publish checks the events of a call one by one, and appends the valid ones to the log
// (publish.go). Beyond the form of each event it checks the number of followees (followees.go,
// follow_cap_cache.go), the number of hidden items (hidden_items.go), and backfills (backfills.go).
//
// Watch streams the events of the log (watch.go).
package eventservice

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers EventService.
type Service struct {
	*views.Views
	Options
	positionTexts  views.PositionTexts
	followCapCache *followCapCache
}

// Options has what EventService needs in addition to the stores.
type Options struct {
	Publisher *eventlog.Publisher
	// CheckDisk returns the error that Publish answers if the disk is too full for more events, or
	// nil.
	CheckDisk func() error
	Metrics   *metrics.Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// VisibleWait is how long a call of Publish waits until its events are visible.
	VisibleWait time.Duration
	// MaxFollowees is how many users one user may follow. A negative number means that there is no
	// limit.
	MaxFollowees int
	// CheckpointInterval is the time without an event after which Watch sends a checkpoint. 0 means
	// defaultCheckpointInterval.
	CheckpointInterval time.Duration
}

// New returns a service that reads from the stores of v, and appends with the publisher of the
// options.
func New(v *views.Views, o Options) *Service {
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = defaultCheckpointInterval
	}
	return &Service{Views: v, Options: o, followCapCache: newFollowCapCache()}
}
