package notificationservice

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// WatchNotifications sends what CountNotifications counts, and sends it again when it has changed. It counts only if it is woken: package feedwatch
// says when, and what is guaranteed.
func (s *Service) WatchNotifications(
	ctx context.Context, req *skeinv1.WatchNotificationsRequest, out call.Stream[skeinv1.WatchNotificationsResponse],
) error {
	w, err := s.Watchers.Enter(req.GetUserId(), false, false) //nolint:contextcheck // what follows the log serves all watchers
	if err != nil {
		return err
	}
	defer w.Leave()
	n := &watcher{s: s, Watcher: w, user: req.GetUserId(), out: out}
	if err := n.count(ctx, req.GetAtLeast()); err != nil {
		return err
	}
	if err := n.send(); err != nil {
		return err
	}
	return n.run(ctx)
}

// watcher is one stream.
type watcher struct {
	s *Service
	*feedwatch.Watcher
	user string
	out  call.Stream[skeinv1.WatchNotificationsResponse]
	// last is what was counted at the time counted. sent is when something was sent last.
	last          *skeinv1.WatchNotificationsResponse
	counted, sent time.Time
}

// run counts and sends until the context ends.
func (n *watcher) run(ctx context.Context) error {
	timer := time.NewTimer(n.s.Silence)
	defer timer.Stop()
	for woken := false; ; {
		if woken {
			timer.Reset(n.s.Pace - time.Since(n.counted))
		} else {
			timer.Reset(n.s.Silence - time.Since(n.sent))
		}
		select {
		case <-n.Changed():
			woken = true
		case <-timer.C:
		case <-n.Failed():
			return n.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}

		mustSend := time.Since(n.sent) >= n.s.Silence
		isInexact := n.last.GetCompleteness() != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
		if woken && time.Since(n.counted) >= n.s.Pace || mustSend && isInexact {
			woken = false
			before := n.last
			if err := n.count(ctx, ""); err != nil {
				return err
			}
			mustSend = mustSend || n.last.GetCount() != before.GetCount() || n.last.GetMore() != before.GetMore() ||
				n.last.GetCompleteness() != before.GetCompleteness() || !proto.Equal(n.last.GetSeenTime(), before.GetSeenTime())
		}
		if mustSend {
			if err := n.send(); err != nil {
				return err
			}
		}
	}
}

// count counts what is unseen now. Counting takes a deep stack, which the goroutine of a stream would keep while it waits. So another goroutine
// counts, and ends. A panic continues in the goroutine of the stream.
func (n *watcher) count(ctx context.Context, atLeast string) error {
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
		o.err = n.countHere(ctx, atLeast)
	}()
	o := <-done
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

func (n *watcher) countHere(ctx context.Context, atLeast string) error {
	select {
	case n.s.counts <- struct{}{}:
		defer func() { <-n.s.counts }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	least, err := views.DemandOf(atLeast)
	if err != nil {
		return err
	}
	o, err := n.s.open(ctx, new(call.Info), least)
	if err != nil {
		return err
	}
	defer o.close()

	// The pins of those who re-pinned decide about the number, too, and their ends need not name the user.
	err = n.Follow(func(add func(owner string) error) error {
		n.last, err = o.countUnseen(ctx, n.user, func(actor string) { _ = add(actor) }) // add returns no error
		return err
	})
	if err != nil {
		return err
	}
	end, err := o.graph.FirstMuteEnd(n.user)
	if err != nil {
		return err
	}
	n.WakeAt(end)
	n.counted = time.Now()
	return nil
}

// send sends what was counted last.
func (n *watcher) send() error {
	err := n.out.Send(n.last)
	n.sent = time.Now()
	return err
}
