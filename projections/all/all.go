// Package all is the list of all projections.
package all

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// Settings are what the folds of the projections read. Their values are part of the fingerprints.
type Settings struct {
	// Inbox are those of inbox; zero: the defaults.
	Inbox inbox.Settings
}

// All returns a new instance of every projection, one line each. The order never matters.
func All(s Settings) []projections.Projection {
	if s.Inbox == (inbox.Settings{}) {
		s.Inbox = inbox.DefaultSettings()
	}
	return []projections.Projection{
		graph.New(),
		inbox.New(s.Inbox),
	}
}
