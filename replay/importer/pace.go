package importer

import (
	"context"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/replay"
)

// Lag is how far the slowest projection is behind the log.
type Lag struct {
	Projection string
	Behind     time.Duration
}

// LagFunc returns the lag of the slowest projection that folds.
type LagFunc func(context.Context) (Lag, error)

// DefaultMaxLag is the lag of projections beyond which an import waits for them.
const DefaultMaxLag = 5 * time.Second

const (
	// lagEvery is the time between two queries of the lag while calls are made, lagPause while they wait. Between two answers the lag
	// can grow by lagEvery.
	lagEvery = time.Second
	lagPause = 250 * time.Millisecond
)

// pacing has the lag as an import knows it.
type pacing struct {
	asked time.Time
	// slowed is the lag for which calls have waited last; zero means that projections keep up.
	slowed Lag
	waited time.Duration
}

// pace waits until the slowest projection is at most MaxLag behind. Without it, an import that publishes faster than projections fold
// would delay live events more and more. If the lag is not known, pace returns: the call after it meets the same error, and is retried.
func (r *run) pace(ctx context.Context, at replay.PhaseProgress) error {
	if r.Lag == nil || r.MaxLag <= 0 || time.Since(r.pacing.asked) < lagEvery {
		return nil
	}
	began, waiting := time.Now(), false
	for {
		asking, cancel := context.WithTimeout(ctx, r.CallTimeout)
		lag, err := r.Lag(asking)
		cancel()
		r.pacing.asked = time.Now()
		if waiting {
			r.pacing.waited += r.pacing.asked.Sub(began)
			began = r.pacing.asked
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil //nolint:nilerr // the call after it meets the error too
		case lag.Behind <= r.MaxLag:
			if lag.Behind < r.MaxLag/2 {
				r.pacing.slowed = Lag{}
			}
			return nil
		}
		waiting, r.pacing.slowed = true, lag
		r.Observe(r.progress(at))
		if wait.For(ctx, lagPause) != nil {
			return context.Cause(ctx)
		}
	}
}
