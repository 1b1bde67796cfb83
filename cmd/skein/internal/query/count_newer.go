package query

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countFlags choose the entries of a feed that are counted.
type countFlags struct {
	feedFlags `embed:""`

	NewerThan string `help:"Count what is newer than the page that printed this token; by default, than the read marker." placeholder:"TOKEN"`
}

type countNewerCmd struct {
	countFlags `embed:""`
}

// Run calls CountNewer.
func (c *countNewerCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.CountNewerRequest{
		ReaderId: c.Reader, NewerThan: c.NewerThan, IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
		IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only],
	}
	return call(ctx, q, std, q.Client().Feed().CountNewer, req, func(res *skeinv1.CountNewerResponse) error {
		return printCount(std, res)
	})
}

type watchFeedCmd struct {
	countFlags `embed:""`

	Limit uint64 `help:"End after this many numbers; 0 means never." default:"0"`
}

// Run prints the numbers of WatchFeed until it is interrupted. It continues after a restart of the
// service.
func (c *watchFeedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	api, err := q.dialReconnecting()
	if err != nil {
		return err
	}

	req := &skeinv1.WatchFeedRequest{
		ReaderId: c.Reader, NewerThan: c.NewerThan, IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
		IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only], AtLeast: q.AtLeast,
	}
	return printCounts(q, std, api.WatchFeed(ctx, req, watchOptions), c.Limit)
}

// watchOptions make a stream of counts survive a restart of the service.
var watchOptions = client.StreamOptions{RetryFor: command.ReconnectFor} //nolint:gochecknoglobals // a constant

// dialReconnecting returns the client of the Go package, which opens a stream again when the stream
// breaks. The client of [Cmd.Client] does not.
func (q *Cmd) dialReconnecting() (*client.Client, error) {
	connection := q.Client()
	return client.Dial(connection.URL, client.Options{HTTP: connection.HTTP})
}

// printCounts prints the messages of a stream, each of which is a count. It returns when the stream
// ends, or after limit messages; a limit of 0 means that there is none.
func printCounts[Message interface {
	proto.Message
	countAnswer
}](q *Cmd, std *command.Streams, messages iter.Seq2[Message, error], limit uint64) error {
	printed := uint64(0)
	for message, err := range messages {
		if err != nil {
			return err
		}

		if q.JSON {
			err = command.PrintJSON(std.Out, message)
		} else {
			err = printCount(std, message)
		}
		printed++
		if err != nil || printed == limit {
			return err
		}
	}
	return nil
}

// countAnswer is the answer of a method that counts entries of a feed, or groups of notifications.
type countAnswer interface {
	GetCount() uint32
	GetMore() bool
	GetCompleteness() skeinv1.FeedCompleteness
}

// printCount prints a count, with a plus sign if there are more than the service counts.
func printCount(std *command.Streams, res countAnswer) error {
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
