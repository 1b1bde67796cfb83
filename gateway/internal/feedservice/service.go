// Package feedservice answers FeedService, one file per method:
//
//	ReadFeed              read_feed.go         a page of a feed, by time or by heat (feed_heat.go), without what was seen (hide_seen.go)
//	CountNewer            count_newer.go       how many pins are above an earlier page
//	WatchFeed             watch_feed.go        a stream that sends this number when it changes
//	ExplainPin            explain_pin.go       why a pin is in a feed or not
//	ListPins              list_pins.go         the pins of an owner or board
//	BatchGetPins          batch_get_pins.go    pins by their names
//	BatchGetViewerState   viewer_state.go      how a viewer relates to pins and items: seen, reactions, follows
//
// A feed is read from the inbox projection, at the position of one view (package views).
package feedservice

import (
	"log/slog"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers FeedService.
type Service struct {
	*views.Views
	metrics *metrics.Metrics
	// expensiveReads limits how many feeds by heat are read at a time, because each page of one
	// reads all pins that are ranked.
	expensiveReads *admission.Budget
	logger         *slog.Logger
	// maxRanked is how many pins of a feed are ranked by heat.
	maxRanked int

	// Watchers wakes the streams of WatchFeed when their feed may have changed.
	Watchers *feedwatch.Watchers
}

// New returns the service. It fails if v.Inbox is the store of another projection.
func New(v *views.Views, m *metrics.Metrics, expensiveReads *admission.Budget, logger *slog.Logger) (*Service, error) {
	maxRanked, err := maxRankedOf(v.Inbox.Live)
	if err != nil {
		return nil, err
	}
	return &Service{
		Views: v, metrics: m, expensiveReads: expensiveReads, logger: logger, maxRanked: maxRanked,
		Watchers: feedwatch.New(v.Log, v.Hub, v.Inbox.Live),
	}, nil
}
