package query

import (
	"context"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type notificationsCmd struct {
	User      string `arg:"" help:"The user who is notified."`
	pageFlags `embed:"" set:"pageDefault=20" set:"pageMost=100"`
}

// Run calls ReadNotifications.
func (c *notificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ReadNotificationsRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Notifications().ReadNotifications, req,
		[]string{"GROUP", "KIND", "PIN", "ACTORS", "COUNT", "NEWEST", "STATE"},
		func(res *skeinv1.ReadNotificationsResponse) [][]string {
			return mapRows(res.GetGroups(), notificationRow)
		})
}

// notificationRow returns the row of a group of notifications. Its state says "unseen" for a group
// that is not seen, whether or not the group is read.
func notificationRow(g *skeinv1.NotificationGroup) []string {
	var actors []string
	for _, a := range g.GetActors() {
		actors = append(actors, a.GetUserId())
	}

	state := "read"
	switch {
	case g.GetUnseen():
		state = "unseen"
	case g.GetUnread():
		state = "unread"
	}
	return []string{
		g.GetGroupId(), formatEnum(g.GetKind().String(), "NOTIFICATION_KIND_"), g.GetPin().GetPinId(),
		strings.Join(actors, ","), formatCount(g.GetActorCount()), command.TimeText(g.GetNewestTime()), state,
	}
}

type countNotificationsCmd struct {
	User string `arg:"" help:"The user who is notified."`
}

// Run calls CountNotifications.
func (c *countNotificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.CountNotificationsRequest{UserId: c.User}
	return call(ctx, q, std, q.Client().Notifications().CountNotifications, req, func(res *skeinv1.CountNotificationsResponse) error {
		return printCount(std, res)
	})
}

type watchNotificationsCmd struct {
	User  string `arg:"" help:"The user who is notified."`
	Limit uint64 `help:"End after this many numbers; 0 means never." default:"0"`
}

// Run prints the numbers of WatchNotifications until it is interrupted. It continues after a
// restart of the service.
func (c *watchNotificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	api, err := q.dialReconnecting()
	if err != nil {
		return err
	}

	req := &skeinv1.WatchNotificationsRequest{UserId: c.User, AtLeast: q.AtLeast}
	return printCounts(q, std, api.WatchNotifications(ctx, req, watchOptions), c.Limit)
}
