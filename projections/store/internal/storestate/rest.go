package storestate

import (
	"context"
	"time"
)

// A small commit costs almost as much as a large one, because its rows are far apart in the store.
// So if envelopes arrive one by one, the fold rests after each commit, and then folds everything
// that has arrived meanwhile together. This way, small commits take at most a quarter of the time.
// The rest delays no caller: it ends when a caller begins to wait for a position, and a store with
// little to do has finished its rest before the next envelope arrives.
const (
	// restFactor is the length of a rest as a multiple of the time that the fold has worked before
	// it.
	restFactor = 3
	// maxRest is the longest rest, so it bounds the delay until an envelope is visible. A fold that
	// has worked for so long does not rest, because enough envelopes have arrived meanwhile.
	maxRest = 20 * time.Millisecond
)

// Rest blocks the fold after it has worked for the duration worked. It returns at the end of the
// rest, and early when a caller begins to wait for a position that is not visible yet, when the
// store stops, and when the context ends.
func (m *Machine) Rest(ctx context.Context, worked time.Duration) {
	if worked >= maxRest {
		return
	}

	// Remove an old signal, whose caller may no longer wait. Then look for callers that still do.
	select {
	case <-m.waiterAdded:
	default:
	}
	if m.hasWaiters() {
		return
	}

	timer := time.NewTimer(min(restFactor*worked, maxRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.waiterAdded:
	case <-m.down:
	case <-ctx.Done():
	}
}

func (m *Machine) hasWaiters() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiters) > 0
}

// signalWaiterAdded ends the rest of the fold if it is resting now.
func (m *Machine) signalWaiterAdded() {
	select {
	case m.waiterAdded <- struct{}{}:
	default:
	}
}
