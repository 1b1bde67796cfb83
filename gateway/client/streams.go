package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// StreamOptions say how a stream that breaks is continued. The zero value is good.
type StreamOptions struct {
	// RetryFor is for how long to try to continue. Default 30 s; negative means not at all.
	RetryFor time.Duration
	// Silence is after how long without a message a stream counts as broken. Default 20 s, for WatchFeed 90 s. The service sends
	// something every 5 s, in WatchFeed every 30 s. A scan has no such limit.
	Silence time.Duration
}

// Watch follows the log. Where the stream breaks it continues after the last message: nothing is left out, nothing comes twice. To
// continue in another process, keep the position of the last message and pass it as After. It ends with an error: that of the context, or
// one that another try would repeat.
func (c *Client) Watch(ctx context.Context, req *skeinv1.WatchRequest, o StreamOptions) iter.Seq2[*skeinv1.WatchResponse, error] {
	req = proto.CloneOf(req)
	o.Silence = orElse(o.Silence, 20*time.Second)
	return resumed(ctx, o, false, func(
		ctx context.Context, last *skeinv1.WatchResponse,
	) (*connect.ServerStreamForClient[skeinv1.WatchResponse], error) {
		if last != nil {
			req.After = last.GetPosition()
		}
		return c.Events.Watch(ctx, connect.NewRequest(req))
	})
}

// WatchFeed follows how many entries of a feed are above an earlier page, or above the read marker. It begins with the present number, also
// where the stream breaks and is continued: after the last change the last message has the final number. It ends as [Client.Watch] does.
func (c *Client) WatchFeed(
	ctx context.Context, req *skeinv1.WatchFeedRequest, o StreamOptions,
) iter.Seq2[*skeinv1.WatchFeedResponse, error] {
	req = proto.CloneOf(req)
	o.Silence = orElse(o.Silence, 90*time.Second)
	return resumed(ctx, o, false, func(
		ctx context.Context, last *skeinv1.WatchFeedResponse,
	) (*connect.ServerStreamForClient[skeinv1.WatchFeedResponse], error) {
		if last != nil {
			req.AtLeast = last.GetPosition() // another process may be behind
		}
		return c.Feed.WatchFeed(ctx, connect.NewRequest(req))
	})
}

// ScanFollowers reads all followers of a user or board. Where the stream breaks it continues after the last message. It ends with the last
// follower, or with an error.
func (c *Client) ScanFollowers(
	ctx context.Context, req *skeinv1.ScanFollowersRequest, o StreamOptions,
) iter.Seq2[*skeinv1.ScanFollowersResponse, error] {
	req = proto.CloneOf(req)
	return resumed(ctx, o, true, func(
		ctx context.Context, last *skeinv1.ScanFollowersResponse,
	) (*connect.ServerStreamForClient[skeinv1.ScanFollowersResponse], error) {
		if last != nil {
			req.ResumeToken = last.GetResumeToken()
		}
		return c.Graph.ScanFollowers(ctx, connect.NewRequest(req))
	})
}

func orElse(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

var (
	errSilent = connect.NewError(connect.CodeUnavailable, errors.New("client: nothing came for too long"))
	errEnded  = connect.NewError(connect.CodeUnavailable, errors.New("client: the stream ended"))
)

// resumed reads a stream, and opens it again after the last message where it breaks. Ends reports whether the stream has an end.
func resumed[Res any](
	ctx context.Context, o StreamOptions, ends bool,
	open func(ctx context.Context, last *Res) (*connect.ServerStreamForClient[Res], error),
) iter.Seq2[*Res, error] {
	return func(yield func(*Res, error) bool) {
		tries := newTries(o.RetryFor)
		var last *Res
		for {
			more, err := attempt(ctx, o.Silence, func(ctx context.Context) (*connect.ServerStreamForClient[Res], error) {
				return open(ctx, last)
			}, func(m *Res) bool {
				last = m
				taken := yield(m, nil)
				tries.reset()
				return taken
			})
			if !more || err == nil && ends {
				return
			}
			if err == nil {
				err = errEnded
			}
			if err := tries.again(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// attempt reads a stream until it ends, breaks or is silent for too long, or until take wants no more.
func attempt[Res any](
	ctx context.Context, silence time.Duration,
	open func(ctx context.Context) (*connect.ServerStreamForClient[Res], error), take func(*Res) bool,
) (more bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := newWatchdog(silence, func() { cancel(errSilent) })
	defer timer.stop()
	stream, err := open(ctx)
	if err != nil {
		return true, silent(ctx, err)
	}
	for stream.Receive() {
		m := stream.Msg()
		timer.stop() // the caller may take its time
		if !take(m) {
			cancel(nil)
			_ = stream.Close() // its end is of no interest
			return false, nil
		}
		timer.start()
	}
	return true, silent(ctx, errors.Join(stream.Err(), stream.Close()))
}

// silent returns why an attempt ended: an attempt that was canceled for its silence says so.
func silent(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// watchdog calls what it was given when it is not stopped in time. One of no time never does.
type watchdog struct {
	timer *time.Timer
	after time.Duration
}

func newWatchdog(after time.Duration, bark func()) *watchdog {
	if after <= 0 {
		return &watchdog{}
	}
	return &watchdog{time.AfterFunc(after, bark), after}
}

func (w *watchdog) start() {
	if w.timer != nil {
		w.timer.Reset(w.after)
	}
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
