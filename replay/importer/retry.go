package importer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/internal/retry"
)

// PublishFunc calls Publish once.
type PublishFunc func(context.Context, *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error)

// IsFinal reports whether the same call would fail again.
func IsFinal(err error) bool {
	return retry.IsFinal(err)
}

// publishRetrying calls Publish, and repeats the same call for as long as Patience allows. It
// returns a final error at once. reportRetry is called with each other error.
func (o *Options) publishRetrying(
	ctx context.Context, req *skeinv1.PublishRequest, reportRetry func(error),
) (*skeinv1.PublishResponse, error) {
	deadline := time.Now().Add(o.Patience)
	pause := retry.FirstPause
	for {
		attempt, cancel := context.WithTimeout(ctx, o.CallTimeout)
		res, err := o.Publish(attempt, req)
		cancel()
		switch {
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case IsFinal(err):
			return nil, err
		case time.Now().Add(pause).After(deadline):
			return nil, fmt.Errorf("gave up after trying for %v: %w", o.Patience, err)
		}
		reportRetry(err)
		// The pause is random, so that many importers do not come back at the same moment.
		if wait.For(ctx, pause/2+rand.N(pause/2)) != nil {
			return nil, context.Cause(ctx)
		}
		pause = min(2*pause, retry.LongestPause)
	}
}
