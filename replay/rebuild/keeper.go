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
	// firstRetry is the pause after a rebuild that failed. It doubles with each failure, up to lastRetry.
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// Keeper rebuilds a projection that cannot continue: it is damaged, or outdated.
type Keeper struct {
	Live *live.Live
	// Heal rebuilds what is damaged: files that cannot be opened or read, rows that cannot be.
	Heal bool
	// Adopt rebuilds what was built by another version or with other settings than the program has.
	Adopt bool
	// Rebuild does it, and says why it is done to who wants to know. Required.
	Rebuild func(ctx context.Context, why error) error
	// Logger gets what a person must see; nil means nothing.
	Logger *slog.Logger
}

// wanted reports whether a projection in such a state is to be rebuilt.
func (k *Keeper) wanted(st store.Status) bool {
	return k.Heal && st.Damaged || k.Adopt && st.State == store.Outdated
}

// Run watches over the projection until the context ends, then returns nil. A rebuild that fails is tried again, ever more
// seldom: a bug that spoils rows spoils them again.
func (k *Keeper) Run(ctx context.Context) error {
	logger := k.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	logger = logger.With("projection", k.Live.Name())
	retry := firstRetry
	for ctx.Err() == nil {
		changed := k.Live.Changed()
		st := k.Live.Status()
		if !k.wanted(st) {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		logger.Warn("the projection is rebuilt", "generation", st.Generation, "why", st.Error)
		err := k.Rebuild(ctx, st.Error)
		if err == nil || ctx.Err() != nil {
			retry = firstRetry
			continue
		}
		logger.Error("the projection could not be rebuilt", "retry", retry, "error", err)
		_ = wait.For(ctx, retry) // the loop ends with the context
		retry = min(2*retry, lastRetry)
	}
	return nil
}
