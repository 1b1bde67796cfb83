// Package retry repeats calls to a service that is out of reach or not ready.
package retry

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
)

// The pause between two attempts begins with FirstPause and doubles up to LongestPause.
const (
	FirstPause   = 50 * time.Millisecond
	LongestPause = 5 * time.Second
)

// IsFinal reports whether the same call would fail again. All other errors are worth a retry, even
// if the call may have succeeded without an answer: only backfills are repeated, and the service
// ignores repeated backfills. Such errors include broken connections, some of which connect reports
// as "canceled".
func IsFinal(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeOutOfRange:
		return true
	}
	return false
}

// Read repeats a call that reads until the service answers it, or until the time patience has
// passed. After an import, reads fail until a projection has folded the import. Read returns a
// final error at once, and the cause of ctx's end if ctx ends.
func Read[Req, Res any](
	ctx context.Context, patience time.Duration,
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
