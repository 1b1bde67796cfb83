// Package counterservice answers CounterService: counts of users, boards and items, reactions and
// the users who reacted, and items by heat. It reads the counters projection, and for counts of
// followers and boards, and for blocks, also the graph projection.
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

// New returns a service that reads the stores of v. v must have the counters store.
func New(v *views.Views, m *metrics.Metrics) *Service { return &Service{v, m} }
