package storestate

import (
	"context"
	"time"
)

// A small commit costs hardly less than a large one, because its rows are far apart in the store. So when envelopes come one by one,
// the fold rests after each commit, and folds all envelopes of that time together: at most a quarter of the time goes into small
// commits. A caller that waits for a position ends the rest, and a store with little to do has rested before the next envelope comes.
// So the rest delays no caller.
const (
	// restTimes is the length of a rest as a multiple of the time that the fold has worked.
	restTimes = 3
	// mostRest bounds the delay until an envelope is visible. A fold that works longer than this has gathered enough.
	mostRest = 20 * time.Millisecond
)

// Rest blocks a fold whose last piece of work took took, until it is to continue: after its rest, or as soon as a caller waits for a
// position that is not folded yet. It also returns when the store stops or the context ends.
func (m *Machine) Rest(ctx context.Context, took time.Duration) {
	if took >= mostRest {
		return
	}
	select {
	case <-m.wanted: // an old signal: its caller may no longer wait
	default:
	}
	if m.waitedFor() {
		return
	}
	timer := time.NewTimer(min(restTimes*took, mostRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.wanted:
	case <-m.down:
	case <-ctx.Done():
	}
}

func (m *Machine) waitedFor() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiters) > 0
}

// want ends a rest, if the fold rests now.
func (m *Machine) want() {
	select {
	case m.wanted <- struct{}{}:
	default:
	}
}
