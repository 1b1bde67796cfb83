// Package retry repeats calls to a service that does not answer them.
package retry

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
)

// Pauses between attempts double from the first to the longest.
const (
	FirstPause   = 50 * time.Millisecond
	LongestPause = 5 * time.Second
)

// IsFinal reports whether the same call would fail again. All other errors are worth a retry, also when the call may have been committed: a
// repeated backfill is ignored. They include broken connections, some of which connect reports as "canceled".
func IsFinal(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeOutOfRange:
		return true
	}
	return false
}

// Read repeats a read until it is answered, for as long as patience allows. After an import, reads fail until a projection has folded it.
// Read returns a final error at once.
func Read[Req, Res any](ctx context.Context, patience time.Duration,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, error) {
	deadline := time.Now().Add(patience)
	for pause := FirstPause; ; pause = min(2*pause, LongestPause) {
		res, err := method(ctx, connect.NewRequest(req))
		if err == nil {
			return res.Msg, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if IsFinal(err) || time.Now().Add(pause).After(deadline) {
			return nil, err
		}
		if wait.For(ctx, pause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}
