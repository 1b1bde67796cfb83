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
	// maxRetryFor is the limit of RetryFor. The service recognizes a repeated event id for 15
	// minutes, and a retry after that would publish the event twice.
	maxRetryFor = 10 * time.Minute
	// attemptTimeout is the deadline of one attempt, after which the next one begins.
	attemptTimeout = 10 * time.Second
)

// PublishOptions are the settings of [Client.Publish]. The zero value is ready to use.
type PublishOptions struct {
	// AllowPartial publishes the valid events if others are rejected. Otherwise one rejected event
	// fails the call.
	AllowPartial bool
	// Wait is what Publish waits for. By default it waits until the events are on disk.
	Wait skeinv1.PublishWait
	// RetryFor is how long Publish retries. 0 means 30 seconds. The maximum is 10 minutes. A
	// negative value means one attempt.
	RetryFor time.Duration
}

// Publish appends events to the log, and returns when they are on disk. It gives an id to each
// event that has none, in a copy of the event, and retries with the same ids if the service may not
// have the events. So no event counts twice. A caller that may itself publish the same events again
// must set their ids before the first call, for example with [NewEventID].
func (c *Client) Publish(ctx context.Context, evs []*skeinv1.Event, o PublishOptions) (*skeinv1.PublishResponse, error) {
	req := &skeinv1.PublishRequest{AllowPartial: o.AllowPartial, Wait: o.Wait, Events: make([]*skeinv1.Event, len(evs))}
	for i, ev := range evs {
		if ev.GetEventId() == "" {
			ev = proto.CloneOf(ev)
			ev.EventId = NewEventID()
		}
		req.Events[i] = ev
	}

	retries := newRetrier(min(o.RetryFor, maxRetryFor))
	for {
		res, err := c.publishOnce(ctx, req)
		if err == nil {
			return res, nil
		}
		if err := retries.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// publishOnce makes one attempt, with a deadline of its own.
func (c *Client) publishOnce(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	res, err := c.Events.Publish(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// NewEventID returns a new id for an event: 128 random bits as 32 hexadecimal digits.
func NewEventID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
