// Package seenservice answers SeenService: which of some candidates a user has not seen, and what was served to the user.
package seenservice

import (
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers SeenService.
type Service struct {
	*views.Views
	metrics *metrics.Metrics
}

// New answers from the seen store, which the views must have.
func New(v *views.Views, m *metrics.Metrics) *Service { return &Service{v, m} }
