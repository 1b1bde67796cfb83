package feedservice

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// watchCountInterval is the default of Service.CountInterval. A count costs as much as a page of the feed.
	watchCountInterval = time.Second
	// watchResendAfter is the default of Service.ResendAfter. It keeps proxies from closing the connection, and tells the client that the number
	// still holds.
	watchResendAfter = 30 * time.Second
)

// ValidateWatchFeed checks the reader and the options as ReadFeed does.
func ValidateWatchFeed(c *request.Checker, req *skeinv1.WatchFeedRequest) {
	ValidateReadFeed(c, pageToCount(req))
}

// WatchFeed sends the number that CountNewer returns, and sends it again when it has changed. It counts again only when package feedwatch wakes it;
// that package also says what is guaranteed.
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

	f := &feedWatcher{s: s, Watcher: watcher, req: pageToCount(req), out: out}
	if err := f.count(ctx, req.GetAtLeast(), true); err != nil {
		return err
	}
	if err := f.send(); err != nil {
		return err
	}
	return f.run(ctx)
}

// feedWatcher is one stream of WatchFeed.
type feedWatcher struct {
	s *Service
	*feedwatch.Watcher
	req *skeinv1.ReadFeedRequest // the page that is counted
	out call.Stream[skeinv1.WatchFeedResponse]
	// latest is the result of the last count.
	latest    *skeinv1.WatchFeedResponse
	lastCount time.Time
	lastSend  time.Time
}

// run counts and sends until the context ends.
func (f *feedWatcher) run(ctx context.Context) error {
	timer := time.NewTimer(f.s.ResendAfter)
	defer timer.Stop()
	mayHaveChanged := false // the watcher was woken after the last count
	for {
		if mayHaveChanged {
			timer.Reset(f.s.CountInterval - time.Since(f.lastCount))
		} else {
			timer.Reset(f.s.ResendAfter - time.Since(f.lastSend))
		}
		select {
		case <-f.Changed():
			mayHaveChanged = true
		case <-timer.C:
		case <-f.Failed():
			return f.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}

		mustSend := time.Since(f.lastSend) >= f.s.ResendAfter
		// Nothing wakes the watcher when the seen store answers again or a rebuild ends, so an incomplete number is counted again before it is
		// sent again.
		isIncomplete := f.latest.GetCompleteness() != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
		if mayHaveChanged && time.Since(f.lastCount) >= f.s.CountInterval || mustSend && isIncomplete {
			mayHaveChanged = false
			before := f.latest
			if err := f.count(ctx, "", false); err != nil {
				return err
			}
			mustSend = mustSend || f.differs(before)
		}
		if mustSend {
			if err := f.send(); err != nil {
				return err
			}
		}
	}
}

// differs reports whether the latest count differs from an earlier one in anything that a client shows.
func (f *feedWatcher) differs(before *skeinv1.WatchFeedResponse) bool {
	if f.latest.GetCount() != before.GetCount() || f.latest.GetMore() != before.GetMore() ||
		f.latest.GetCompleteness() != before.GetCompleteness() {
		return true
	}
	// The read marker matters only if the count begins there.
	countsUnread := f.req.GetNewerThan() == ""
	return countsUnread && !proto.Equal(f.latest.GetReadTime(), before.GetReadTime())
}

// count counts the feed and sets latest. isFirst says that this is the first count of the stream.
//
// It runs in a goroutine of its own, which then ends. Reading a page needs a deep stack, and the goroutine of the stream would keep a stack of that
// size as long as it waits for changes.
func (f *feedWatcher) count(ctx context.Context, atLeast string, isFirst bool) error {
	type result struct {
		err        error
		panicValue any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicValue = recover()
			done <- r
		}()
		r.err = f.countOnThisStack(ctx, atLeast, isFirst)
	}()

	r := <-done
	if r.panicValue != nil {
		// The server recovers from panics in the goroutine of the call, and only there.
		panic(r.panicValue)
	}
	return r.err
}

// countOnThisStack does the work of count.
func (f *feedWatcher) countOnThisStack(ctx context.Context, atLeast string, isFirst bool) error {
	select {
	case f.s.countSlots <- struct{}{}:
		defer func() { <-f.s.countSlots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	reader := f.req.GetReaderId()
	newestID := FeedListID(newestList, feedOf(f.req), f.req)
	err := f.s.readNewer(ctx, f.req, atLeast, new(call.Info), func(r *views.Inbox, page inbox.Page, filter *seenFilter) error {
		f.latest = &skeinv1.WatchFeedResponse{
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
		// Later follows reach the watcher as events, so the followed owners are read only once, from the view of the first count.
		return f.Follow(func(add func(owner string) error) error { return r.EachOwner(reader, add) })
	})
	f.lastCount = time.Now()
	return err
}

// send sends the latest count.
func (f *feedWatcher) send() error {
	err := f.out.Send(f.latest)
	f.lastSend = time.Now()
	return err
}
