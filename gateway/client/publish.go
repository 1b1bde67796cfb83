package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// longestRetry is less than the 15 minutes for which the service knows an event id: a retry must not come later.
	longestRetry = 10 * time.Minute
	tryFor       = 10 * time.Second
)

// PublishOptions are the settings of [Client.Publish]. The zero value is good.
type PublishOptions struct {
	// AllowPartial takes the good events when others are refused.
	AllowPartial bool
	// Wait is what to wait for. Default: until the events are on disk.
	Wait skeinv1.PublishWait
	// RetryFor is for how long to try. Default 30 s, at most 10 min; negative means once.
	RetryFor time.Duration
}

// Publish appends facts to the log, and returns when they are on disk. Before the first try it gives an id to each event that has none,
// and it tries again with the same ids while the service may not have the events, so no event counts twice. The events of the caller
// stay as they are. A caller that may publish the same events again itself gives them their ids with [NewEventID].
func (c *Client) Publish(ctx context.Context, evs []*skeinv1.Event, o PublishOptions) (*skeinv1.PublishResponse, error) {
	req := &skeinv1.PublishRequest{AllowPartial: o.AllowPartial, Wait: o.Wait, Events: make([]*skeinv1.Event, len(evs))}
	for i, ev := range evs {
		if ev.GetEventId() == "" {
			ev = proto.CloneOf(ev)
			ev.EventId = NewEventID()
		}
		req.Events[i] = ev
	}
	tries := newTries(min(o.RetryFor, longestRetry))
	for {
		res, err := c.tryPublish(ctx, req)
		if err == nil {
			return res, nil
		}
		if err := tries.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (c *Client) tryPublish(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	res, err := c.Events.Publish(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// NewEventID returns an id for an event: 128 random bits.
func NewEventID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
