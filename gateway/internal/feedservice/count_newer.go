package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countedMost is how many entries are counted.
const countedMost = 100

// counting are the fields of CountNewer and WatchFeed.
type counting interface {
	GetReaderId() string
	GetNewerThan() string
	GetIncludeOwn() bool
	GetHideSeen() bool
	GetOnePerItem() bool
	GetIgnoreServed() bool
	GetOnly() skeinv1.FollowSetting
}

// refreshOf is the call of ReadFeed whose page is counted.
func refreshOf(req counting) *skeinv1.ReadFeedRequest {
	return &skeinv1.ReadFeedRequest{
		ReaderId: req.GetReaderId(), PageSize: countedMost, Start: &skeinv1.ReadFeedRequest_NewerThan{NewerThan: req.GetNewerThan()},
		IncludeOwn: req.GetIncludeOwn(), HideSeen: req.GetHideSeen(), OnePerItem: req.GetOnePerItem(), IgnoreServed: req.GetIgnoreServed(),
		Only: req.GetOnly(),
	}
}

// ValidateCountNewer looks at the reader and the options as ReadFeed does.
func ValidateCountNewer(c *request.Checker, req *skeinv1.CountNewerRequest) {
	ValidateReadFeed(c, refreshOf(req))
}

// CountNewer returns the length of the first page of a refresh, and whether there is another.
func (s *Service) CountNewer(
	ctx context.Context, req *skeinv1.CountNewerRequest, x *call.Info,
) (res *skeinv1.CountNewerResponse, err error) {
	err = s.refresh(ctx, refreshOf(req), req.GetAtLeast(), x, func(r *views.Inbox, page inbox.Page, hidden *hiding) error {
		res = &skeinv1.CountNewerResponse{
			Count: call.Count(int64(len(page.Pins))), More: page.Next != nil, Completeness: hidden.completeness(r), Position: r.Position,
			ReadTime: readTime(page),
		}
		return nil
	})
	return res, err
}

// refresh reads the first page of a refresh, and has do look at it while its view is open.
func (s *Service) refresh(
	ctx context.Context, read *skeinv1.ReadFeedRequest, atLeast string, x *call.Info,
	do func(r *views.Inbox, page inbox.Page, hidden *hiding) error,
) error {
	f := feedOf(read)
	start, err := s.startOf(read, FeedListID(FeedList, f, read), FeedListID(newestList, f, read))
	if err != nil {
		return err
	}
	least, err := views.DemandOf(atLeast)
	if err != nil {
		return err
	}
	r, err := s.OpenFeed(ctx, x, least, start.since)
	if err != nil {
		return err
	}
	defer r.Close()
	f.NewerThan, f.UnreadOnly = start.above, start.above == nil
	page, hidden, err := s.feedPage(ctx, read, x, r, f, start, &r.StoreView)
	if err != nil {
		return start.since.TokenError(err)
	}
	return do(r, page, hidden)
}
