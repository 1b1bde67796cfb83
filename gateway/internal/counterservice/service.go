// Package counterservice answers CounterService: counts of users, boards and items, who reacted, and items by heat.
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

// New answers from the counters, which the views must have.
func New(v *views.Views, m *metrics.Metrics) *Service { return &Service{v, m} }
