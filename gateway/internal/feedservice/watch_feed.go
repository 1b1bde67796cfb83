package feedservice

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateWatchFeed checks the reader and the options as ReadFeed does.
func ValidateWatchFeed(c *request.Checker, req *skeinv1.WatchFeedRequest) {
	ValidateReadFeed(c, pageToCount(req))
}

// WatchFeed sends the number that CountNewer returns, and sends it again when it has changed. It
// counts again only when package feedwatch wakes it; that package also says what is guaranteed.
func (s *Service) WatchFeed(
	ctx context.Context, req *skeinv1.WatchFeedRequest, out call.Stream[skeinv1.WatchFeedResponse],
) error {
	countsUnread := req.GetNewerThan() == ""
	// The watcher enters before the first count, so no change between the two is missed.
	//nolint:contextcheck // the follower of the log serves all watchers, and outlives this call
	watcher, err := s.Watchers.Enter(req.GetReaderId(), req.GetHideSeen(), countsUnread)
	if err != nil {
		return err
	}
	defer watcher.Leave()

	f := &feedWatcher{s: s, Watcher: watcher, req: pageToCount(req), atLeast: req.GetAtLeast()}
	stream := feedwatch.Stream[*skeinv1.WatchFeedResponse]{
		Watcher: watcher, CountNow: f.count, Send: out.Send,
		MarkerTime: func(count *skeinv1.WatchFeedResponse) *timestamppb.Timestamp {
			if !countsUnread {
				return nil // the count begins at a token
			}
			return count.GetReadTime()
		},
	}
	return stream.Run(ctx)
}

// feedWatcher counts for one stream of WatchFeed.
type feedWatcher struct {
	s *Service
	*feedwatch.Watcher
	// req is the page that is counted. atLeast is the position that the first count must contain.
	req     *skeinv1.ReadFeedRequest
	atLeast string
}

// count counts the feed. isFirst says that this is the first count of the stream.
func (f *feedWatcher) count(ctx context.Context, isFirst bool) (count *skeinv1.WatchFeedResponse, err error) {
	atLeast := ""
	if isFirst {
		atLeast = f.atLeast
	}
	reader := f.req.GetReaderId()
	newestID := FeedListID(newestList, feedOf(f.req), f.req)
	err = f.s.readNewer(ctx, f.req, atLeast, new(call.Info), func(r *views.Inbox, page inbox.Page, filter *seenFilter) error {
		count = &skeinv1.WatchFeedResponse{
			Count: call.Count(int64(len(page.Pins))), More: page.Next != nil, Completeness: filter.completeness(r), Position: r.Position,
			ReadTime: readTime(page), NewestToken: f.s.Keys.Sign(pagetoken.Token{List: newestID, Position: r.At, Cursor: page.Top}),
		}
		// The end of a mute is no event, so the watcher must ask to be woken then.
		muteEnd, err := r.FirstMuteEnd(reader)
		if err != nil {
			return err
		}
		f.WakeAt(muteEnd)
		if !isFirst {
			return nil
		}
		// Later follows reach the watcher as events, so the followed owners are read only once,
		// from the view of the first count.
		return f.AddOwners(func(add func(owner string) error) error { return r.EachOwner(reader, add) })
	})
	return count, err
}
