package query

import (
	"context"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/gateway/client"
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
		func(res *skeinv1.ReadNotificationsResponse) (rows [][]string) {
			for _, g := range res.GetGroups() {
				var actors []string
				for _, a := range g.GetActors() {
					actors = append(actors, a.GetUserId())
				}
				kind := strings.ToLower(strings.TrimPrefix(g.GetKind().String(), "NOTIFICATION_KIND_"))
				state := "read"
				switch {
				case g.GetUnseen():
					state = "unseen"
				case g.GetUnread():
					state = "unread"
				}
				rows = append(rows, []string{
					g.GetGroupId(), kind, g.GetPin().GetPinId(), strings.Join(actors, ","), strconv.FormatUint(uint64(g.GetActorCount()), 10),
					command.TimeText(g.GetNewestTime()), state,
				})
			}
			return rows
		})
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
	// The client of the Go package connects again when a stream breaks.
	connection := q.Client()
	api, err := client.Dial(connection.URL, client.Options{HTTP: connection.HTTP})
	if err != nil {
		return err
	}

	req := &skeinv1.WatchNotificationsRequest{UserId: c.User, AtLeast: q.AtLeast}
	printed := uint64(0)
	for message, err := range api.WatchNotifications(ctx, req, client.StreamOptions{RetryFor: command.ReconnectFor}) {
		if err != nil {
			return err
		}
		if q.JSON {
			err = command.PrintJSON(std.Out, message)
		} else {
			err = printCount(std, message)
		}
		printed++
		if err != nil || printed == c.Limit {
			return err
		}
	}
	return nil
}
