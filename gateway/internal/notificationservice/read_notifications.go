package notificationservice

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/notifications"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// notificationsList is the kind of the lists of notifications in their page tokens. It never
// changes.
const notificationsList = 0xf6

// Sizes of pages of groups.
const (
	defaultPageSize = 20
	maxPageSize     = 100
)

// ReadNotifications returns a page of the groups of a user.
func (s *Service) ReadNotifications(
	ctx context.Context, req *skeinv1.ReadNotificationsRequest, info *call.Info,
) (*skeinv1.ReadNotificationsResponse, error) {
	user := req.GetUserId()
	list := pagetoken.NewListID(notificationsList, user)
	cursor, tokenDemand, err := s.Resume(req.GetPageToken(), "page_token", list)
	if err != nil {
		return nil, err
	}
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	o, err := s.openStores(ctx, info, atLeast, tokenDemand)
	if err != nil {
		return nil, err
	}
	defer o.close()

	// These pages are shorter than those of other lists, because each group costs several reads.
	size := min(int(req.GetPageSize()), maxPageSize)
	if size == 0 {
		size = defaultPageSize
	}
	if err := info.ReserveLongPage(ctx, size); err != nil {
		return nil, err
	}
	var page []notifications.Group
	var next notifications.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		page, next, err = o.notifications.Groups(ctx, o, user, cursor, size)
		return err
	}, o.opened...)
	if err != nil {
		return nil, tokenDemand.TokenError(err)
	}
	markers, err := o.notifications.Markers(user)
	if err != nil {
		return nil, err
	}

	res := &skeinv1.ReadNotificationsResponse{
		Completeness: o.completeness(), Position: o.position, SeenTime: markerTime(markers.Seen), ReadTime: markerTime(markers.Read),
	}
	for i := range page {
		res.Groups = append(res.Groups, groupMessage(user, &page[i], &markers))
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: list, Position: views.NextPagePosition(o.opened...), Cursor: next})
	}
	return res, nil
}

// markerTime returns the time of a marker, or nil if there is none.
func markerTime(at events.Micros) *timestamppb.Timestamp {
	if at == 0 {
		return nil
	}
	return timestamppb.New(at.Time())
}

// kindMessages are the kinds as the API has them.
var kindMessages = map[notifications.Kind]skeinv1.NotificationKind{
	notifications.Followed: skeinv1.NotificationKind_NOTIFICATION_KIND_FOLLOWED,
	notifications.Reacted:  skeinv1.NotificationKind_NOTIFICATION_KIND_REACTED,
	notifications.Repinned: skeinv1.NotificationKind_NOTIFICATION_KIND_REPINNED,
}

// groupMessage returns a group of a user as the API has it.
func groupMessage(user string, g *notifications.Group, markers *notifications.Markers) *skeinv1.NotificationGroup {
	times := call.NewTimes(1 + len(g.Actors))
	m := &skeinv1.NotificationGroup{
		GroupId: g.ID(), Kind: kindMessages[g.Kind], ItemId: g.Item, ActorCount: call.Count(int64(g.ActorCount)),
		NewestTime: times.Next(g.Newest), Unread: markers.IsUnread(g), Unseen: markers.IsUnseen(g),
	}
	if g.Kind != notifications.Followed {
		m.Pin = &skeinv1.Pin{OwnerId: user, PinId: g.Pin}
	}
	for i := range g.Actors {
		n := &g.Actors[i]
		actor := &skeinv1.NotificationActor{UserId: n.Actor, Time: times.Next(n.Since)}
		switch g.Kind {
		case notifications.Reacted:
			actor.Reaction = events.ReactionName(n.Reaction)
		case notifications.Repinned:
			actor.Repin = &skeinv1.Pin{OwnerId: n.Actor, PinId: n.Repin}
		}
		m.Actors = append(m.Actors, actor)
	}
	return m
}
