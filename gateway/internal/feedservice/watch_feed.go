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
	// watchPace is the least time between two counts of one watcher.
	watchPace = time.Second
	// watchSilence is after how long without a change the last message is sent again.
	watchSilence = 30 * time.Second
)

// ValidateWatchFeed looks at the reader and the options as ReadFeed does.
func ValidateWatchFeed(c *request.Checker, req *skeinv1.WatchFeedRequest) {
	ValidateReadFeed(c, refreshOf(req))
}

// WatchFeed sends what CountNewer counts, and sends it again when it has changed. It counts only if it is woken: package feedwatch says
// when, and what is guaranteed.
func (s *Service) WatchFeed(
	ctx context.Context, req *skeinv1.WatchFeedRequest, out call.Stream[skeinv1.WatchFeedResponse],
) error {
	unread := req.GetNewerThan() == ""
	w, err := s.Watchers.Enter(req.GetReaderId(), req.GetHideSeen(), unread) //nolint:contextcheck // what follows the log serves all watchers
	if err != nil {
		return err
	}
	defer w.Leave()
	f := &feedWatcher{s: s, Watcher: w, read: refreshOf(req), out: out}
	if err := f.count(ctx, req.GetAtLeast(), true); err != nil {
		return err
	}
	if err := f.send(); err != nil {
		return err
	}
	return f.run(ctx)
}

// feedWatcher is one stream.
type feedWatcher struct {
	s *Service
	*feedwatch.Watcher
	read *skeinv1.ReadFeedRequest
	out  call.Stream[skeinv1.WatchFeedResponse]
	// last is what was counted at counted, and sent when something was sent last.
	last          *skeinv1.WatchFeedResponse
	counted, sent time.Time
}

// run counts and sends until the context ends.
func (f *feedWatcher) run(ctx context.Context) error {
	timer := time.NewTimer(f.s.Silence)
	defer timer.Stop()
	for woken := false; ; {
		if woken {
			timer.Reset(f.s.Pace - time.Since(f.counted))
		} else {
			timer.Reset(f.s.Silence - time.Since(f.sent))
		}
		select {
		case <-f.Changed():
			woken = true
		case <-timer.C:
		case <-f.Failed():
			return f.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		news := time.Since(f.sent) >= f.s.Silence
		inexact := f.last.GetCompleteness() != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
		if woken && time.Since(f.counted) >= f.s.Pace || news && inexact {
			woken = false
			before := f.last
			if err := f.count(ctx, "", false); err != nil {
				return err
			}
			news = news || f.last.GetCount() != before.GetCount() || f.last.GetMore() != before.GetMore() ||
				f.last.GetCompleteness() != before.GetCompleteness() ||
				f.read.GetNewerThan() == "" && !proto.Equal(f.last.GetReadTime(), before.GetReadTime())
		}
		if news {
			if err := f.send(); err != nil {
				return err
			}
		}
	}
}

// count counts the feed as it is. The first time it also notes whom the reader follows. To read a page takes a deep stack, which the
// goroutine of a stream would keep while it waits. So another goroutine reads it, and ends. A panic continues in the stream's goroutine.
func (f *feedWatcher) count(ctx context.Context, atLeast string, first bool) error {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.err = f.countHere(ctx, atLeast, first)
	}()
	o := <-done
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

func (f *feedWatcher) countHere(ctx context.Context, atLeast string, first bool) error {
	select {
	case f.s.counts <- struct{}{}:
		defer func() { <-f.s.counts }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	reader := f.read.GetReaderId()
	newest := FeedListID(newestList, feedOf(f.read), f.read)
	err := f.s.refresh(ctx, f.read, atLeast, new(call.Info), func(r *views.Inbox, page inbox.Page, hidden *hiding) error {
		f.last = &skeinv1.WatchFeedResponse{
			Count: call.Count(int64(len(page.Pins))), More: page.Next != nil, Completeness: hidden.completeness(r), Position: r.Position,
			ReadTime: readTime(page), NewestToken: f.s.Keys.Sign(pagetoken.Token{List: newest, Position: r.At, Cursor: page.Top}),
		}
		end, err := r.FirstMuteEnd(reader)
		if err != nil {
			return err
		}
		f.WakeAt(end)
		if !first {
			return nil
		}
		return f.Follow(func(add func(owner string) error) error { return r.EachOwner(reader, add) })
	})
	f.counted = time.Now()
	return err
}

// send sends what was counted last.
func (f *feedWatcher) send() error {
	err := f.out.Send(f.last)
	f.sent = time.Now()
	return err
}
