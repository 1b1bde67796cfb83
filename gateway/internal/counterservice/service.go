// Package counterservice answers CounterService: counts of users, boards and items, reactions and
// those who reacted, and items by heat. It reads the counters projection. Counts of followers and
// boards come from the graph projection, as do blocks.
package counterservice

import (
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers CounterService.
type Service struct {
	*views.Views
	metrics *metrics.Metrics
}

// New returns a service that reads the stores of v, which must have the counters.
func New(v *views.Views, m *metrics.Metrics) *Service { return &Service{v, m} }
