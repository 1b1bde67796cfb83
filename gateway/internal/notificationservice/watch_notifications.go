package notificationservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// WatchNotifications sends what CountNotifications returns, and sends it again when it has changed.
// It counts again only when package feedwatch wakes it; that package also says what is guaranteed.
func (s *Service) WatchNotifications(
	ctx context.Context, req *skeinv1.WatchNotificationsRequest, out call.Stream[skeinv1.WatchNotificationsResponse],
) error {
	// The watcher enters before the first count, so no change between the two is missed.
	//nolint:contextcheck // the follower of the log serves all watchers, and outlives this call
	watcher, err := s.Watchers.Enter(req.GetUserId(), false, false)
	if err != nil {
		return err
	}
	defer watcher.Leave()

	stream := feedwatch.Stream[*skeinv1.WatchNotificationsResponse]{
		Watcher: watcher, Send: out.Send, MarkerTime: (*skeinv1.WatchNotificationsResponse).GetSeenTime,
		CountNow: func(ctx context.Context, isFirst bool) (*skeinv1.WatchNotificationsResponse, error) {
			atLeast := ""
			if isFirst {
				atLeast = req.GetAtLeast()
			}
			return s.countForWatcher(ctx, watcher, req.GetUserId(), atLeast)
		},
	}
	return stream.Run(ctx)
}

// countForWatcher counts the groups that a user has not seen, and tells the watcher what may change
// this number.
func (s *Service) countForWatcher(
	ctx context.Context, watcher *feedwatch.Watcher, user, atLeast string,
) (count *skeinv1.WatchNotificationsResponse, err error) {
	demand, err := views.DemandOf(atLeast)
	if err != nil {
		return nil, err
	}
	o, err := s.openStores(ctx, new(call.Info), demand)
	if err != nil {
		return nil, err
	}
	defer o.close()

	// The pins of those who re-pinned decide about the number, too, and their ends need not name
	// the user.
	err = watcher.AddOwners(func(add func(owner string) error) error {
		count, err = o.countUnseen(ctx, user, func(actor string) { _ = add(actor) }) // add returns no error
		return err
	})
	if err != nil {
		return nil, err
	}
	// The end of a mute is no event, so the watcher must ask to be woken then.
	muteEnd, err := o.graph.FirstMuteEnd(user)
	if err != nil {
		return nil, err
	}
	watcher.WakeAt(muteEnd)
	return count, nil
}
