package query

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countFlags say which entries of a feed are counted.
type countFlags struct {
	Reader       string `arg:"" help:"The reader of the feed."`
	NewerThan    string `help:"Only what is newer than a page, as query feed prints it; by default, than the read marker." placeholder:"TOKEN"`
	IncludeOwn   bool   `help:"The reader's own pins, too."`
	HideSeen     bool   `help:"Leave out what the reader has played or was served, as query seen does."`
	IgnoreServed bool   `help:"With --hide-seen, look at plays only."`
	OnePerItem   bool   `help:"Each item once."`
	Only         string `help:"Only pins of users whose follow has a setting, or of all: ${enum}." enum:"all,favorite,notify" default:"all"`
}

type countNewerCmd struct {
	countFlags `embed:""`
}

// Run calls CountNewer.
func (c *countNewerCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Feed().CountNewer, &skeinv1.CountNewerRequest{
		ReaderId: c.Reader, NewerThan: c.NewerThan, IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen, OnePerItem: c.OnePerItem,
		IgnoreServed: c.IgnoreServed, Only: followSettings[c.Only], AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error { return printCount(std, res) })
}

type watchFeedCmd struct {
	countFlags `embed:""`

	Limit uint64 `help:"End after so many numbers; 0 means never." default:"0"`
}

// Run prints the numbers of WatchFeed until it is interrupted. It continues after a restart of the service.
func (c *watchFeedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	to := q.Client()
	api, err := client.Dial(to.URL, client.Options{HTTP: to.HTTP})
	if err != nil {
		return err
	}
	req := &skeinv1.WatchFeedRequest{
		ReaderId: c.Reader, NewerThan: c.NewerThan, IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen, OnePerItem: c.OnePerItem,
		IgnoreServed: c.IgnoreServed, Only: followSettings[c.Only], AtLeast: q.AtLeast,
	}
	numbers := uint64(0)
	for m, err := range api.WatchFeed(ctx, req, client.StreamOptions{RetryFor: command.ReconnectFor}) {
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

// counted is an answer that counts entries of a feed.
type counted interface {
	GetCount() uint32
	GetMore() bool
	GetCompleteness() skeinv1.FeedCompleteness
}

func printCount(std *command.Streams, res counted) error {
	more := ""
	if res.GetMore() {
		more = "+"
	}
	if _, err := fmt.Fprintf(std.Out, "%d%s\n", res.GetCount(), more); err != nil {
		return err
	}
	sayCompleteness(std, res.GetCompleteness())
	return nil
}
