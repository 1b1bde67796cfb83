// Package seenservice answers SeenService: which of some items a user has not seen, what was served
// to the user, and which items the user hides. It reads the seen projection.
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

// New returns a service that reads the stores of v. v must have the seen store.
func New(v *views.Views, m *metrics.Metrics) *Service { return &Service{v, m} }
