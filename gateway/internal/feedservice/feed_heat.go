package feedservice

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
)

var errNoCounters = connect.NewError(connect.CodeUnimplemented,
	errors.New("feeds by heat need the projection counters, which this service does not have"))

// maxRankedOf returns how many pins of a feed are ranked by heat: as many as the store keeps in an
// inbox. It fails if the store is not that of the inbox projection.
func maxRankedOf(store *live.Live) (int, error) {
	p, ok := store.Projection().(*inbox.Inbox)
	if !ok {
		return 0, fmt.Errorf("gateway: the store of %s is not that of inbox", store.Name())
	}
	return p.Config().Keep, nil
}

// openHeat opens the counters at a position that contains all demands, and sets f to rank by their
// scores. The caller must close the counters after it has read the feed.
func (s *Service) openHeat(ctx context.Context, f *inbox.Feed, demands ...views.Demand) (*views.Counters, error) {
	if s.Counters == nil {
		return nil, errNoCounters
	}
	r, err := s.OpenCounters(ctx, nil, demands...)
	if err != nil {
		return nil, err
	}
	f.MaxRanked = s.maxRanked
	f.Heat = inbox.Heat{At: r.View.Cursor(), Scores: func(seq uint64) inbox.Scores { return r.ScoresAt(seq) }}
	return r, nil
}
