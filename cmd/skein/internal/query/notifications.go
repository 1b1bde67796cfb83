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
	User      string `arg:"" help:"Whose notifications."`
	pageFlags `embed:""`
}

// Run calls ReadNotifications.
func (c *notificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Notifications().ReadNotifications,
		func(size int32, token string) *skeinv1.ReadNotificationsRequest {
			return &skeinv1.ReadNotificationsRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
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
	User string `arg:"" help:"Whose notifications."`
}

// Run calls CountNotifications.
func (c *countNotificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Notifications().CountNotifications, &skeinv1.CountNotificationsRequest{
		UserId: c.User, AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error { return printCount(std, res) })
}

type watchNotificationsCmd struct {
	User  string `arg:"" help:"Whose notifications."`
	Limit uint64 `help:"End after so many numbers; 0 means never." default:"0"`
}

// Run prints the numbers of WatchNotifications until it is interrupted. It continues after a restart of the service.
func (c *watchNotificationsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	to := q.Client()
	api, err := client.Dial(to.URL, client.Options{HTTP: to.HTTP})
	if err != nil {
		return err
	}
	req := &skeinv1.WatchNotificationsRequest{UserId: c.User, AtLeast: q.AtLeast}
	numbers := uint64(0)
	for m, err := range api.WatchNotifications(ctx, req, client.StreamOptions{RetryFor: command.ReconnectFor}) {
		if err != nil {
			return err
		}
		if q.JSON {
			err = command.PrintJSON(std.Out, m)
		} else {
			err = printCount(std, m)
		}
		if numbers++; err != nil || numbers == c.Limit {
			return err
		}
	}
	return nil
}
