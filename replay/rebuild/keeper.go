package rebuild

import (
	"context"
	"log/slog"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

const (
	// minRetryDelay is the pause after a rebuild that failed. The pause doubles with each further
	// failure, up to maxRetryDelay.
	minRetryDelay = time.Minute
	maxRetryDelay = time.Hour
)

// Supervisor watches a projection and rebuilds it when it cannot follow the log any more, because
// it is damaged or outdated.
type Supervisor struct {
	Live *live.Live
	// Heal rebuilds a projection that is damaged: its files cannot be opened or read, or rows in
	// them cannot be decoded.
	Heal bool
	// Adopt rebuilds a projection whose rows were built by another version of the projection or
	// with other settings than this program has.
	Adopt bool
	// Rebuild performs the rebuild. why is the error that makes it necessary. Required.
	Rebuild func(ctx context.Context, why error) error
	// Logger receives the beginning and the failure of rebuilds; nil discards them.
	Logger *slog.Logger
}

// needsRebuild reports whether a projection with this status is to be rebuilt.
func (k *Supervisor) needsRebuild(st store.Status) bool {
	return k.Heal && st.Damaged || k.Adopt && st.State == store.Outdated
}

// Run watches the projection until the context ends and then returns nil. It retries a rebuild that
// fails with growing pauses: if a bug has damaged the rows, a rebuild may well damage them again.
func (k *Supervisor) Run(ctx context.Context) error {
	logger := k.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	logger = logger.With("projection", k.Live.Name())

	retryDelay := minRetryDelay
	for ctx.Err() == nil {
		// Changed is called first, so that a change between the two calls is not missed.
		changed := k.Live.Changed()
		st := k.Live.Status()
		if !k.needsRebuild(st) {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}

		logger.Warn("the projection is rebuilt", "generation", st.Generation, "why", st.Error)
		err := k.Rebuild(ctx, st.Error)
		if err == nil || ctx.Err() != nil {
			retryDelay = minRetryDelay
			continue
		}

		logger.Error("the projection could not be rebuilt", "retry", retryDelay, "error", err)
		_ = wait.For(ctx, retryDelay) // if ctx ends, so does the loop
		retryDelay = min(2*retryDelay, maxRetryDelay)
	}
	return nil
}
