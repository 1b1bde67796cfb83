// Package eventservice answers EventService: Publish judges events one by one and appends the good ones to the log (publish.go,
// followees.go, follow_cap_cache.go); Watch streams what the log has (watch.go).
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
	names          views.Positions
	followCapCache *followCapCache
}

// Options are what EventService has beside the stores.
type Options struct {
	Publisher *eventlog.Publisher
	// CheckDisk says why nothing may be published at the moment, or is nil.
	CheckDisk func() error
	Metrics   *metrics.Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// VisibleWait is how long a call waits until its events are visible.
	VisibleWait time.Duration
	// Followees is how many users one may follow; negative: no limit.
	Followees int
	// Checkpoints is after how long without an event a watch says how far it is; 0 means watchPeriod.
	Checkpoints time.Duration
}

// New answers from the stores and appends with what the options have.
func New(v *views.Views, o Options) *Service {
	if o.Checkpoints == 0 {
		o.Checkpoints = watchPeriod
	}
	return &Service{Views: v, Options: o, followCapCache: newFollowCapCache()}
}
