// Package graphservice answers GraphService: who follows, blocks and mutes whom, the lists of these
// relations, and their counts. Each answer is read from one view of the graph projection, that is,
// at one position of the log.
//
// Each method about given users and boards has a file of its own. Methods that return pages of
// lists are in list_users.go and list_boards.go. lists.go reads the pages.
package graphservice

import (
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers GraphService.
type Service struct{ *views.Views }

// New returns a service that reads the graph of v.
func New(v *views.Views) *Service { return &Service{v} }
