// Package memlog is a log in memory for tests of stores. It has decoded envelopes, and may grow while it is read. A generated world
// fills every kind of row of every projection.
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
	grown chan struct{}
}

// New returns a log of these envelopes.
func New(envs ...*events.Envelope) *Log { return &Log{envs: envs, grown: make(chan struct{})} }

// Append adds envelopes, and wakes the readers that wait.
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
	r := &reader{log: l, closed: make(chan struct{})}
	for r.next < len(l.envs) && l.envs[r.next].Seq() <= from.Seq {
		r.next++
	}
	return r, nil
}

// reader is one reading of the log.
type reader struct {
	log    *Log
	next   int
	closed chan struct{}
}

var errClosed = errors.New("memlog: closed")

// Next returns the next envelopes, at most 64. It waits until there is one, the reader is closed or the context ends.
func (r *reader) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	for {
		r.log.mu.Lock()
		rest, grown := r.log.envs[r.next:], r.log.grown
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

// Head returns the last sequence of the log.
func (r *reader) Head() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if len(r.log.envs) == 0 {
		return 0
	}
	return r.log.envs[len(r.log.envs)-1].Seq()
}

// Close ends the reading, and a Next that waits.
func (r *reader) Close() { close(r.closed) }
