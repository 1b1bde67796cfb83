// Package all is the list of all projections.
package all

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/seen"
)

// Settings are what the folds of the projections read. Their values are part of the fingerprints.
type Settings struct {
	// Inbox are those of inbox; zero: the defaults.
	Inbox inbox.Settings
	// Seen are those of seen; zero: the defaults.
	Seen seen.Settings
	// Counters are those of counters; zero: the defaults. What they have in common with Inbox should be equal: feeds and
	// lists are ranked by the same heat then.
	Counters counters.Settings
}

// All returns a new instance of every projection, one line each. The order never matters.
func All(s Settings) []projections.Projection {
	if s.Inbox == (inbox.Settings{}) {
		s.Inbox = inbox.DefaultSettings()
	}
	if s.Seen == (seen.Settings{}) {
		s.Seen = seen.DefaultSettings()
	}
	if s.Counters == (counters.Settings{}) {
		s.Counters = counters.DefaultSettings()
	}
	return []projections.Projection{
		graph.New(),
		inbox.New(s.Inbox),
		seen.New(s.Seen),
		counters.New(s.Counters),
	}
}
