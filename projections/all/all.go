// Package all is the list of all projections.
package all

import (
	"fmt"
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// Settings are what the folds of the projections read. Their values are part of the fingerprints, but for those of caches.
type Settings struct {
	// Inbox are those of inbox; zero: the defaults.
	Inbox inbox.Settings
	// Seen are those of seen; zero: the defaults.
	Seen seen.Settings
	// Counters are the settings of counters; the zero value means the defaults. Settings that Inbox has too should be equal, so that
	// feeds and lists rank by the same heat.
	Counters counters.Settings
	// Cache bounds what queries of graph and inbox keep in memory; nil means nothing. It changes no row.
	Cache *querycache.Cache `json:"-"`
}

// All returns a new instance of every projection.
func All(s Settings) (all []projections.Projection) {
	for _, p := range Makers(s) {
		all = append(all, p())
	}
	return all
}

// Makers make new instances of every projection, one line each. The order never matters.
func Makers(s Settings) []func() projections.Projection {
	if s.Inbox == (inbox.Settings{}) {
		s.Inbox = inbox.DefaultSettings()
	}
	if s.Seen == (seen.Settings{}) {
		s.Seen = seen.DefaultSettings()
	}
	if s.Counters == (counters.Settings{}) {
		s.Counters = counters.DefaultSettings()
	}
	return []func() projections.Projection{
		func() projections.Projection { return graph.NewWith(s.Cache) },
		func() projections.Projection { return inbox.NewWith(s.Inbox, s.Cache) },
		func() projections.Projection { return seen.New(s.Seen) },
		func() projections.Projection { return counters.New(s.Counters) },
	}
}

// Describe is [DescribeRow] for people: in one line.
func Describe(projection string, key, value []byte) (string, error) {
	return projections.Text(DescribeRow(projection, key, value))
}

// DescribeRow says what a row of the store of a projection says, the rows of the runtime too. It fails for a row that no
// fold can have written, and for all rows of a projection that is not in the list.
func DescribeRow(projection string, key, value []byte) (*projections.Description, error) {
	if projections.IsRuntimeKey(key) {
		return store.DescribeRow(key, value)
	}
	in, ok := rowDescribers[projection]
	if !ok {
		return nil, fmt.Errorf("%w: a row of %q, which is not known", projections.ErrCorrupt, projection)
	}
	return in.describe(key, value)
}

// RowKinds returns the kinds of rows that [DescribeRow] tells of a projection, those of the runtime included, sorted; nil means the
// projection is not in the list.
func RowKinds(projection string) []string {
	in, ok := rowDescribers[projection]
	if !ok {
		return nil
	}
	kinds := append(in.rowKinds(), store.RuntimeKinds()...)
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// inspector tells people what the rows of a projection say.
type rowDescriber struct {
	describe func(key, value []byte) (*projections.Description, error)
	rowKinds func() []string
}

// inspectors has one line a projection, too.
var rowDescribers = map[string]rowDescriber{
	"graph":    {graph.DescribeRow, graph.RowKinds},
	"inbox":    {inbox.DescribeRow, inbox.RowKinds},
	"seen":     {seen.DescribeRow, seen.RowKinds},
	"counters": {counters.DescribeRow, counters.RowKinds},
}
