// Package all is the list of all projections.
package all

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// Settings are what the folds of the projections read. Their values are part of the fingerprints.
type Settings struct{}

// All returns a new instance of every projection, one line each. The order never matters.
func All(Settings) []projections.Projection {
	return []projections.Projection{
		graph.New(),
	}
}
