package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// watchCmd prints the events of the log as they are published.
type watchCmd struct {
	command.ClientFlags `embed:""`

	After string   `help:"Print the events after this position, or with \"earliest\" all; by default those from now on." placeholder:"POSITION"`
	Kind  []string `help:"Only events of this kind, such as user_followed; repeat for several." placeholder:"KIND" sep:"none"`
	User  []string `help:"Only events in which this user acts or is the target; repeat for several." placeholder:"USER" sep:"none"`
	JSON  bool     `help:"Print messages in the JSON form of the API, checkpoints included, one object per line."`
	Limit uint64   `help:"End after this many events; 0 means never." default:"0"`
}

// Run prints events, one JSON object a line, until it is interrupted. After a restart of the
// service it continues at its position.
func (c *watchCmd) Run(ctx context.Context, std *command.Streams) error {
	req := &skeinv1.WatchRequest{After: c.After, Kinds: c.Kind, UserIds: c.User}
	if strings.EqualFold(c.After, "earliest") {
		req.After = "EARLIEST"
	}

	api := c.Client().Events()
	printed := uint64(0)
	lastContact := time.Now()
	saidRetry := false
	for {
		stream, err := api.Watch(ctx, connect.NewRequest(req))
		for err == nil && stream.Receive() {
			m := stream.Msg()
			lastContact = time.Now()
			saidRetry = false
			if err = c.printMessage(std, m); err != nil {
				return errors.Join(err, stream.Close())
			}
			req.After = m.GetPosition() // from here the next stream continues
			if m.GetEvent() != nil {
				printed++
			}
			if c.Limit > 0 && printed >= c.Limit {
				return c.endWatch(std, req.GetAfter(), nil)
			}
		}

		// The stream has broken. If the service may be restarting, try again.
		if err == nil {
			err = errors.Join(stream.Err(), stream.Close())
		}
		if ctx.Err() != nil {
			return c.endWatch(std, req.GetAfter(), ctx.Err())
		}
		if err != nil && (connect.CodeOf(err) != connect.CodeUnavailable || time.Since(lastContact) > command.ReconnectFor) {
			return c.endWatch(std, req.GetAfter(), err)
		}
		if err != nil && !saidRetry {
			saidRetry = true
			std.Sayf("retrying: %v", err)
		}
		if wait.For(ctx, time.Second) != nil {
			return c.endWatch(std, req.GetAfter(), ctx.Err())
		}
	}
}

// endWatch prints the position at which the next watch continues.
func (c *watchCmd) endWatch(std *command.Streams, position string, err error) error {
	if position != "" {
		std.Sayf("at position %s", position)
	}
	return err
}

// printMessage prints one message: in the form of the API, or its time followed by the event in the
// form that publish reads.
func (c *watchCmd) printMessage(std *command.Streams, m *skeinv1.WatchResponse) error {
	if c.JSON {
		return command.PrintJSON(std.Out, m)
	}
	if m.GetEvent() == nil {
		return nil
	}
	line, err := protojson.MarshalOptions{}.Marshal(m.GetEvent())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s %s\n", command.TimeText(m.GetEventTime()), line)
	return err
}
