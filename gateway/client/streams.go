package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// StreamOptions say how a broken stream is continued. The zero value is ready to use.
type StreamOptions struct {
	// RetryFor is how long a broken stream is opened again without success. 0 means 30 seconds, and
	// a negative value means that it is not.
	RetryFor time.Duration
	// IdleTimeout is the time without a message after which a stream counts as broken. 0 means 20
	// seconds for Watch, where the service sends a message at least every 5 seconds, 90 seconds for
	// WatchFeed and WatchNotifications, where it does every 30 seconds, and no timeout for
	// ScanFollowers.
	IdleTimeout time.Duration
}

// Watch streams the events of the log. If the stream breaks, it continues after the last message,
// so no event is missing and none comes twice. To continue in another process, pass the position of
// the last message as After. The iteration ends with an error: the cause of the context, or an
// error that another attempt would repeat.
func (c *Client) Watch(ctx context.Context, req *skeinv1.WatchRequest, o StreamOptions) iter.Seq2[*skeinv1.WatchResponse, error] {
	req = proto.CloneOf(req)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 20*time.Second)
	return resumeWhenBroken(ctx, o, false, func(
		ctx context.Context, last *skeinv1.WatchResponse,
	) (*connect.ServerStreamForClient[skeinv1.WatchResponse], error) {
		if last != nil {
			req.After = last.GetPosition()
		}
		return c.Events.Watch(ctx, connect.NewRequest(req))
	})
}

// WatchFeed streams how many entries of a feed are above an earlier page, or above the read marker.
// The first message has the present number, and so has the first message after a broken stream was
// opened again. After the last change, the last message has the final number. The iteration ends as
// that of [Client.Watch] does.
func (c *Client) WatchFeed(
	ctx context.Context, req *skeinv1.WatchFeedRequest, o StreamOptions,
) iter.Seq2[*skeinv1.WatchFeedResponse, error] {
	req = proto.CloneOf(req)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 90*time.Second)
	return resumeWhenBroken(ctx, o, false, func(
		ctx context.Context, last *skeinv1.WatchFeedResponse,
	) (*connect.ServerStreamForClient[skeinv1.WatchFeedResponse], error) {
		if last != nil {
			req.AtLeast = last.GetPosition() // the stream may continue at another process, which may be behind
		}
		return c.Feed.WatchFeed(ctx, connect.NewRequest(req))
	})
}

// WatchNotifications streams how many groups of notifications a user has not seen. It begins with
// the current number, also after the stream broke and continued, so the last message after the last
// change has the final number. The iteration ends as that of [Client.Watch] does.
func (c *Client) WatchNotifications(
	ctx context.Context, req *skeinv1.WatchNotificationsRequest, o StreamOptions,
) iter.Seq2[*skeinv1.WatchNotificationsResponse, error] {
	req = proto.CloneOf(req)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 90*time.Second)
	return resumeWhenBroken(ctx, o, false, func(
		ctx context.Context, last *skeinv1.WatchNotificationsResponse,
	) (*connect.ServerStreamForClient[skeinv1.WatchNotificationsResponse], error) {
		if last != nil {
			req.AtLeast = last.GetPosition() // another process may be behind
		}
		return c.Notifications.WatchNotifications(ctx, connect.NewRequest(req))
	})
}

// ScanFollowers streams all followers of a user or board. If the stream breaks, it continues after
// the last message. The iteration ends after the last follower, or with an error.
func (c *Client) ScanFollowers(
	ctx context.Context, req *skeinv1.ScanFollowersRequest, o StreamOptions,
) iter.Seq2[*skeinv1.ScanFollowersResponse, error] {
	req = proto.CloneOf(req)
	return resumeWhenBroken(ctx, o, true, func(
		ctx context.Context, last *skeinv1.ScanFollowersResponse,
	) (*connect.ServerStreamForClient[skeinv1.ScanFollowersResponse], error) {
		if last != nil {
			req.ResumeToken = last.GetResumeToken()
		}
		return c.Graph.ScanFollowers(ctx, connect.NewRequest(req))
	})
}

var (
	errIdle  = connect.NewError(connect.CodeUnavailable, errors.New("client: the stream has sent no message for too long"))
	errEnded = connect.NewError(connect.CodeUnavailable, errors.New("client: the stream ended"))
)

// resumeWhenBroken iterates over the messages of a stream. If the stream breaks, resumeWhenBroken
// opens it again, with the last message. isFinite says that the stream may end without an error,
// and the iteration then ends, too; otherwise such an end counts as a break.
func resumeWhenBroken[Res any](
	ctx context.Context, o StreamOptions, isFinite bool,
	open func(ctx context.Context, last *Res) (*connect.ServerStreamForClient[Res], error),
) iter.Seq2[*Res, error] {
	return func(yield func(*Res, error) bool) {
		retries := newRetrier(o.RetryFor)
		var last *Res
		for {
			wantsMore, err := readStream(ctx, o.IdleTimeout, func(ctx context.Context) (*connect.ServerStreamForClient[Res], error) {
				return open(ctx, last)
			}, func(m *Res) bool {
				last = m
				wantsMore := yield(m, nil)
				retries.reset() // after yield, because the caller may take its time
				return wantsMore
			})
			if !wantsMore || err == nil && isFinite {
				return
			}
			if err == nil {
				err = errEnded
			}
			if err := retries.wait(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// readStream opens a stream and passes its messages to use, until the stream ends, breaks or is
// idle for too long, or until use returns false. wantsMore is the last result of use.
func readStream[Res any](
	ctx context.Context, idleTimeout time.Duration,
	open func(ctx context.Context) (*connect.ServerStreamForClient[Res], error), use func(*Res) bool,
) (wantsMore bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := newIdleTimer(idleTimeout, func() { cancel(errIdle) })
	defer timer.stop()

	stream, err := open(ctx)
	if err != nil {
		return true, idleOr(ctx, err)
	}
	for stream.Receive() {
		m := stream.Msg()
		timer.stop() // the time that the caller takes does not count
		if !use(m) {
			cancel(nil)
			_ = stream.Close() // the caller does not want to know how it ends
			return false, nil
		}
		timer.start()
	}
	return true, idleOr(ctx, errors.Join(stream.Err(), stream.Close()))
}

// idleOr returns errIdle instead of err if the stream failed because the idle timer canceled it.
func idleOr(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errIdle) {
		return errIdle
	}
	return err
}

// idleTimer calls a function if it is not stopped in time. Without a timeout it does nothing.
type idleTimer struct {
	timer   *time.Timer // nil without a timeout
	timeout time.Duration
}

// newIdleTimer returns a timer that has started. A timeout of 0 or less means that there is none.
func newIdleTimer(timeout time.Duration, onTimeout func()) *idleTimer {
	if timeout <= 0 {
		return &idleTimer{}
	}
	return &idleTimer{time.AfterFunc(timeout, onTimeout), timeout}
}

func (t *idleTimer) start() {
	if t.timer != nil {
		t.timer.Reset(t.timeout)
	}
}

func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
