package storetest

import (
	"context"
	"strings"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// Log is a log of envelopes in memory that grows.
type Log struct {
	mu    sync.Mutex
	envs  []*events.Envelope
	grown chan struct{}
	// Most is how many envelopes are delivered at once.
	Most int
	// Err is what every subscription fails with; From are the cursors of all subscriptions, and Open is how many are open.
	Err  error
	From []events.Cursor
	Open int
	// Subscribed gets each subscription, if a test waits for one.
	Subscribed chan struct{}
}

// NewLog returns a log of some envelopes.
func NewLog(envs ...*events.Envelope) *Log {
	return &Log{envs: envs, grown: make(chan struct{}), Subscribed: make(chan struct{}, 10), Most: 50}
}

// Append appends envelopes, and wakes the readers.
func (l *Log) Append(envs ...*events.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envs = append(l.envs, envs...)
	close(l.grown)
	l.grown = make(chan struct{})
}

// Fail lets every subscription fail from now on.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	l.Err = err
	l.mu.Unlock()
	l.Append()
}

// Subscribe is a [store.SubscribeFunc].
func (l *Log) Subscribe(from events.Cursor) (store.Subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err != nil {
		return nil, l.Err
	}
	l.From = append(l.From, from)
	l.Open++
	l.Subscribed <- struct{}{}
	return &reader{log: l, next: conformance.After(l.envs, from)}, nil
}

type reader struct {
	log  *Log
	next int
}

func (r *reader) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	for {
		r.log.mu.Lock()
		rest, grown, err := r.log.envs[r.next:], r.log.grown, r.log.Err
		r.log.mu.Unlock()
		if err != nil {
			return nil, err
		}
		n, bytes := 0, 0
		for n < min(len(rest), r.log.Most) && (n == 0 || bytes+rest[n].Bytes <= maxBytes) {
			bytes += rest[n].Bytes
			n++
		}
		if n > 0 {
			r.next += n
			return rest[:n], nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *reader) Head() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if len(r.log.envs) == 0 {
		return 0
	}
	return r.log.envs[len(r.log.envs)-1].Seq()
}

func (r *reader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.Open--
}

// States notes the states that a listener hears.
type States struct {
	mu   sync.Mutex
	seen []store.State
}

// Add notes a state.
func (s *States) Add(state store.State, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, state)
}

// String returns the states in the order in which they came.
func (s *States) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, state := range s.seen {
		names = append(names, state.String())
	}
	return strings.Join(names, " ")
}
