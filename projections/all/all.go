// Package all is the list of all projections.
package all

import (
	"fmt"
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// Settings are the settings of all projections. Those that a fold reads are part of its
// fingerprint; Cache is none of them.
type Settings struct {
	// Inbox are the settings of inbox; the zero value means the defaults.
	Inbox inbox.Settings
	// Seen are the settings of seen; the zero value means the defaults.
	Seen seen.Settings
	// Counters are the settings of counters; the zero value means the defaults. Settings that Inbox
	// has, too, should be equal, so that feeds and lists rank by the same heat.
	Counters counters.Settings
	// Notifications are the settings of notifications; the zero value means the defaults.
	Notifications notifications.Settings
	// Cache limits what queries of graph and inbox keep in memory; nil means that they keep
	// nothing. It changes no row.
	Cache *querycache.Cache `json:"-"`
}

// All returns a new instance of every projection.
func All(s Settings) (all []projections.Projection) {
	for _, newProjection := range Constructors(s) {
		all = append(all, newProjection())
	}
	return all
}

// Constructors returns a function for each projection that returns a new instance of it. Their
// order does not matter.
func Constructors(s Settings) []func() projections.Projection {
	if s.Inbox == (inbox.Settings{}) {
		s.Inbox = inbox.DefaultSettings()
	}
	if s.Seen == (seen.Settings{}) {
		s.Seen = seen.DefaultSettings()
	}
	if s.Counters == (counters.Settings{}) {
		s.Counters = counters.DefaultSettings()
	}
	if s.Notifications == (notifications.Settings{}) {
		s.Notifications = notifications.DefaultSettings()
	}

	return []func() projections.Projection{
		func() projections.Projection { return graph.NewWith(s.Cache) },
		func() projections.Projection { return inbox.NewWith(s.Inbox, s.Cache) },
		func() projections.Projection { return seen.New(s.Seen) },
		func() projections.Projection { return counters.New(s.Counters) },
		func() projections.Projection { return notifications.New(s.Notifications) },
	}
}

// Describe is [DescribeRow] as one line of text.
func Describe(projection string, key, value []byte) (string, error) {
	return projections.Text(DescribeRow(projection, key, value))
}

// DescribeRow describes a row of the store of a projection for people, also a row of the runtime.
// It returns [projections.ErrCorrupt] for a row that no fold can have written, and for any row of
// an unknown projection.
func DescribeRow(projection string, key, value []byte) (*projections.Description, error) {
	if projections.IsRuntimeKey(key) {
		return store.DescribeRow(key, value)
	}
	describer, ok := rowDescribers[projection]
	if !ok {
		return nil, fmt.Errorf("%w: a row of %q, which is not known", projections.ErrCorrupt, projection)
	}
	return describer.describe(key, value)
}

// RowKinds returns the sorted names of the kinds of rows that [DescribeRow] describes for a
// projection, including those of the runtime. It returns nil for an unknown projection.
func RowKinds(projection string) []string {
	describer, ok := rowDescribers[projection]
	if !ok {
		return nil
	}
	kinds := append(describer.rowKinds(), store.RuntimeKinds()...)
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// rowDescriber describes the rows of a projection, and names their kinds.
type rowDescriber struct {
	describe func(key, value []byte) (*projections.Description, error)
	rowKinds func() []string
}

// rowDescribers has an entry for each projection.
var rowDescribers = map[string]rowDescriber{
	"graph":         {graph.DescribeRow, graph.RowKinds},
	"inbox":         {inbox.DescribeRow, inbox.RowKinds},
	"seen":          {seen.DescribeRow, seen.RowKinds},
	"counters":      {counters.DescribeRow, counters.RowKinds},
	"notifications": {notifications.DescribeRow, notifications.RowKinds},
}
