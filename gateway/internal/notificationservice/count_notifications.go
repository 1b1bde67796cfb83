package notificationservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// maxCounted is how many groups are counted, because each of them costs reads. The answer then says
// that there are more.
const maxCounted = 100

// CountNotifications returns how many groups the user has not seen.
func (s *Service) CountNotifications(
	ctx context.Context, req *skeinv1.CountNotificationsRequest, info *call.Info,
) (res *skeinv1.CountNotificationsResponse, err error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	o, err := s.openStores(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer o.close()
	n, err := o.countUnseen(ctx, req.GetUserId(), func(string) {}) // only a watcher needs to know these users
	if err != nil {
		return nil, err
	}
	return &skeinv1.CountNotificationsResponse{
		Count: n.GetCount(), More: n.GetMore(), Completeness: n.GetCompleteness(), Position: n.GetPosition(), SeenTime: n.GetSeenTime(),
	}, nil
}

// countUnseen counts the groups that a user has not seen. It calls eachRepinner with the actors of
// re-pins whose pins decide about the number.
func (o *stores) countUnseen(
	ctx context.Context, user string, eachRepinner func(actor string),
) (*skeinv1.WatchNotificationsResponse, error) {
	seen, err := o.notifications.Seen(user)
	if err != nil {
		return nil, err
	}
	var count int
	var more bool
	err = views.RunUntilResolved(ctx, func() (err error) {
		count, more, err = o.notifications.CountUnseen(ctx, o, user, seen, maxCounted, eachRepinner)
		return err
	}, o.opened...)
	return &skeinv1.WatchNotificationsResponse{
		Count: call.Count(int64(count)), More: more, Completeness: o.completeness(), Position: o.position, SeenTime: markerTime(seen),
	}, err
}
