package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A count of new pins is the length of one page: the first page that ReadFeed returns for the same
// options and newer_than. So a count and the page that a client reads after it never disagree.

// maxCounted is the size of that page, so a count stops there, because it costs as much as reading
// the page. The answer then says that there are more.
const maxCounted = 100

// countRequest has what the requests of CountNewer and WatchFeed have in common.
type countRequest interface {
	GetReaderId() string
	GetNewerThan() string
	GetIncludeOwn() bool
	GetHideSeen() bool
	GetOnePerItem() bool
	GetIgnoreServed() bool
	GetOnly() skeinv1.FollowSetting
}

// pageToCount returns the request of ReadFeed whose page is counted.
func pageToCount(req countRequest) *skeinv1.ReadFeedRequest {
	return &skeinv1.ReadFeedRequest{
		ReaderId: req.GetReaderId(), PageSize: maxCounted, Start: &skeinv1.ReadFeedRequest_NewerThan{NewerThan: req.GetNewerThan()},
		IncludeOwn: req.GetIncludeOwn(), HideSeen: req.GetHideSeen(), OnePerItem: req.GetOnePerItem(), IgnoreServed: req.GetIgnoreServed(),
		Only: req.GetOnly(),
	}
}

// ValidateCountNewer checks the reader and the options as ReadFeed does.
func ValidateCountNewer(c *request.Checker, req *skeinv1.CountNewerRequest) {
	ValidateReadFeed(c, pageToCount(req))
}

// CountNewer returns how many pins are newer than an earlier page, or than the read marker if the
// request has no newer_than.
func (s *Service) CountNewer(
	ctx context.Context, req *skeinv1.CountNewerRequest, info *call.Info,
) (res *skeinv1.CountNewerResponse, err error) {
	err = s.readNewer(ctx, pageToCount(req), req.GetAtLeast(), info, func(r *views.Inbox, page inbox.Page, filter *seenFilter) error {
		res = &skeinv1.CountNewerResponse{
			Count: call.Count(int64(len(page.Pins))), More: page.Next != nil, Completeness: filter.completeness(r), Position: r.Position,
			ReadTime: readTime(page),
		}
		return nil
	})
	return res, err
}

// readNewer reads the page of a count, and calls use with it while its view is still open. filter
// is nil if the request does not hide what was seen.
func (s *Service) readNewer(
	ctx context.Context, req *skeinv1.ReadFeedRequest, atLeast string, info *call.Info,
	use func(r *views.Inbox, page inbox.Page, filter *seenFilter) error,
) error {
	f := feedOf(req)
	start, err := s.startFeed(req, FeedListID(FeedList, f, req), FeedListID(newestList, f, req))
	if err != nil {
		return err
	}
	demand, err := views.DemandOf(atLeast)
	if err != nil {
		return err
	}
	r, err := s.OpenInbox(ctx, info, demand, start.token)
	if err != nil {
		return err
	}
	defer r.Close()

	// Without newer_than, the count begins at the read marker.
	f.NewerThan = start.lowerEnd
	f.UnreadOnly = start.lowerEnd == nil
	page, filter, err := s.readPage(ctx, req, info, r, f, start, &r.StoreView)
	if err != nil {
		return start.token.TokenError(err)
	}
	return use(r, page, filter)
}
