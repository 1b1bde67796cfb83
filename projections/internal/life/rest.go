package life

import (
	"context"
	"time"
)

// What a small commit costs is hardly less than what a large one does: its rows are far from each other, wherever rows stand. So
// a fold to which envelopes come one by one rests for a while after each, and folds together what has come until then: at
// most a quarter of the time goes into small commits. A store with little to do rests before anything comes, and nobody waits.
const (
	// restTimes is how many times as long as it has worked a fold rests.
	restTimes = 3
	// mostRest bounds what a rest adds to the time until an envelope is visible. A fold that works as long has gathered enough.
	mostRest = 20 * time.Millisecond
)

// Rest returns when a fold that took so long is to continue: after its rest, or as soon as somebody waits for what is still to
// be folded.
func (l *Life) Rest(ctx context.Context, took time.Duration) {
	if took >= mostRest {
		return
	}
	select {
	case <-l.wanted: // of a waiting that may be over
	default:
	}
	if l.waitedFor() {
		return
	}
	timer := time.NewTimer(min(restTimes*took, mostRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.wanted:
	case <-l.down:
	case <-ctx.Done():
	}
}

func (l *Life) waitedFor() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiters) > 0
}

// want ends a rest.
func (l *Life) want() {
	select {
	case l.wanted <- struct{}{}:
	default:
	}
}
