// Package graphservice answers GraphService: who follows whom, and the lists and counts of that, each answer from one view of the
// graph. It is one file a method, and one for each family of lists.
package graphservice

import (
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers GraphService.
type Service struct{ *views.Views }

// New answers from the graph.
func New(v *views.Views) *Service { return &Service{v} }
