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

// Pauses between attempts: they double from the first to the longest.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Final reports whether the same call would fail again. All other errors are worth a retry, also when the call may have been committed: a
// repeated backfill is ignored. They include broken connections, some of which connect reports as "canceled".
func Final(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeOutOfRange:
		return true
	}
	return false
}

// retrying repeats the same call until it is answered, for as long as Patience allows. It returns a final error at once.
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
		// The pause is random, so that many importers do not come back at the same moment.
		if wait.For(ctx, pause/2+rand.N(pause/2)) != nil {
			return nil, context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}

// Ask repeats a read until it is answered, for as long as patience allows. After an import, reads fail until a projection has folded it.
// Ask returns a final error at once.
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
