package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countedMost is how many entries are counted.
const countedMost = 100

// refreshOf is the call of ReadFeed whose page is counted.
func refreshOf(req *skeinv1.CountNewerRequest) *skeinv1.ReadFeedRequest {
	return &skeinv1.ReadFeedRequest{
		ReaderId: req.GetReaderId(), PageSize: countedMost, Start: &skeinv1.ReadFeedRequest_NewerThan{NewerThan: req.GetNewerThan()},
		IncludeOwn: req.GetIncludeOwn(), HideSeen: req.GetHideSeen(), OnePerItem: req.GetOnePerItem(), IgnoreServed: req.GetIgnoreServed(),
	}
}

// ValidateCountNewer looks at the reader and the options as ReadFeed does.
func ValidateCountNewer(c *request.Checker, req *skeinv1.CountNewerRequest) {
	ValidateReadFeed(c, refreshOf(req))
}

// CountNewer returns the length of the first page of a refresh, and whether there is another.
func (s *Service) CountNewer(ctx context.Context, req *skeinv1.CountNewerRequest, x *call.Info) (*skeinv1.CountNewerResponse, error) {
	read := refreshOf(req)
	f := feedOf(read)
	start, err := s.startOf(read, FeedListID(FeedList, f, read), FeedListID(newestList, f, read))
	if err != nil {
		return nil, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenFeed(ctx, x, least, start.since)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f.Above = start.above
	page, hidden, err := s.feedPage(ctx, read, x, r, f, start)
	if err != nil {
		return nil, start.since.TokenError(err)
	}
	return &skeinv1.CountNewerResponse{
		Count: call.Count(int64(len(page.Pins))), More: page.Next != nil, Completeness: hidden.completeness(r), Position: r.Position,
	}, nil
}
