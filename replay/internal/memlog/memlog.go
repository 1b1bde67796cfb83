// Package memlog is a log in memory, for tests of stores. Its envelopes are decoded already, and
// more can be appended while it is read. [World] generates envelopes that lead to every kind of row
// of every projection.
package memlog

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// Log is a log of envelopes. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	envs  []*events.Envelope
	grown chan struct{} // closed, and replaced, by Append
}

// New returns a log with these envelopes.
func New(envs ...*events.Envelope) *Log {
	return &Log{envs: envs, grown: make(chan struct{})}
}

// Append appends envelopes and wakes up the readers that wait for them.
func (l *Log) Append(envs ...*events.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envs = append(l.envs, envs...)
	close(l.grown)
	l.grown = make(chan struct{})
}

// Subscribe subscribes to the log after a cursor.
func (l *Log) Subscribe(from events.Cursor) (store.Subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &subscription{log: l, closed: make(chan struct{})}
	for r.next < len(l.envs) && l.envs[r.next].Seq() <= from.Seq {
		r.next++
	}
	return r, nil
}

// subscription implements [store.Subscription].
type subscription struct {
	log    *Log
	next   int // the index of the next envelope
	closed chan struct{}
}

var errClosed = errors.New("memlog: closed")

// Next returns up to 64 of the next envelopes. It waits until there is one, the subscription is
// closed or ctx ends.
func (r *subscription) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	for {
		r.log.mu.Lock()
		rest := r.log.envs[r.next:]
		grown := r.log.grown
		r.log.mu.Unlock()

		if n := min(len(rest), 64); n > 0 {
			r.next += n
			return rest[:n], nil
		}

		select {
		case <-grown:
		case <-r.closed:
			return nil, errClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Head returns the last sequence of the log; 0 if the log is empty.
func (r *subscription) Head() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if len(r.log.envs) == 0 {
		return 0
	}
	return r.log.envs[len(r.log.envs)-1].Seq()
}

// Close closes the subscription. A Next that waits returns an error.
func (r *subscription) Close() { close(r.closed) }
