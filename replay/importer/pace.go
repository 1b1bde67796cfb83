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

// LagFunc returns the lag of the projection that is furthest behind.
type LagFunc func(context.Context) (Lag, error)

// DefaultMaxLag is the lag of projections above which an import waits for them.
const DefaultMaxLag = 5 * time.Second

const (
	// lagInterval is how often the lag is queried while calls are made. Between two queries, the
	// lag can grow by lagInterval.
	lagInterval = time.Second
	// lagRetryDelay is the pause between two queries while calls wait.
	lagRetryDelay = 250 * time.Millisecond
)

// lagState is what an import knows of the lag.
type lagState struct {
	lastQuery time.Time
	// waitedFor is the lag for which calls have last waited; zero means that projections keep up.
	waitedFor Lag
	// waited is how long calls have waited.
	waited time.Duration
}

// waitForProjections waits until the slowest projection is at most MaxLag behind. Without that, an
// import that publishes faster than projections fold would delay live events more and more. If the
// lag is not known, it returns at once: the next call meets the same error, and is retried.
func (r *importRun) waitForProjections(ctx context.Context, at replay.PhaseProgress) error {
	if r.Lag == nil || r.MaxLag <= 0 || time.Since(r.lagState.lastQuery) < lagInterval {
		return nil
	}

	waitStart := time.Now()
	isWaiting := false
	for {
		queryCtx, cancel := context.WithTimeout(ctx, r.CallTimeout)
		lag, err := r.Lag(queryCtx)
		cancel()
		r.lagState.lastQuery = time.Now()
		if isWaiting {
			r.lagState.waited += r.lagState.lastQuery.Sub(waitStart)
			waitStart = r.lagState.lastQuery
		}

		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil //nolint:nilerr // the next call meets the error, too
		case lag.Behind <= r.MaxLag:
			if lag.Behind < r.MaxLag/2 {
				// Report that projections keep up only when they clearly do.
				r.lagState.waitedFor = Lag{}
			}
			return nil
		}

		isWaiting = true
		r.lagState.waitedFor = lag
		r.Observe(r.progress(at))
		if wait.For(ctx, lagRetryDelay) != nil {
			return context.Cause(ctx)
		}
	}
}
