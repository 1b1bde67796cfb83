package importer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// PublishFunc makes one Publish call.
type PublishFunc func(context.Context, *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error)

// Times of retrying.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Final reports whether the same call would fail again. After all other errors, unknown outcomes and broken connections
// included (of which connect calls some "canceled"), the same call is worth another try.
func Final(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeOutOfRange:
		return true
	}
	return false
}

// retrying makes a call, the same again and again, until it is answered, for as long as patience allows. An error that
// is final ends it at once.
func (o *Options) retrying(
	ctx context.Context, req *skeinv1.PublishRequest, waiting func(error),
) (*skeinv1.PublishResponse, error) {
	deadline := time.Now().Add(o.Patience)
	pause := firstPause
	for {
		attempt, cancel := context.WithTimeout(ctx, o.CallTimeout)
		res, err := o.Publish(attempt, req)
		cancel()
		switch {
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case Final(err):
			return nil, err
		case time.Now().Add(pause).After(deadline):
			return nil, fmt.Errorf("gave up after trying for %v: %w", o.Patience, err)
		}
		waiting(err)
		// Many importers must not come back all at once.
		if wait.For(ctx, pause/2+rand.N(pause/2)) != nil {
			return nil, context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}

// Ask makes a read until it is answered, for as long as patience allows: at first a projection has not yet folded what was
// imported. An error that is final ends it at once.
func Ask[Req, Res any](ctx context.Context, patience time.Duration,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, error) {
	deadline := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		res, err := method(ctx, connect.NewRequest(req))
		if err == nil {
			return res.Msg, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if Final(err) || time.Now().Add(pause).After(deadline) {
			return nil, err
		}
		if wait.For(ctx, pause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}
