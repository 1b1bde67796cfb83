package storetest

import (
	"context"
	"strings"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// Log is an in-memory log to which a test appends envelopes.
type Log struct {
	// mu guards all fields that change while a subscription is open.
	mu   sync.Mutex
	envs []*events.Envelope
	// grown is closed, and replaced, when envelopes are appended.
	grown chan struct{}

	// Most is the largest number of envelopes that one call of Next returns.
	Most int
	// Err, if not nil, is the error of every subscription.
	Err error
	// From has the cursor of each subscription so far, in the order in which they were made.
	From []events.Cursor
	// Open is the number of subscriptions that are not closed.
	Open int
	// Subscribed receives a value for each subscription. A test that makes more subscriptions than
	// its capacity must read from it.
	Subscribed chan struct{}
}

// NewLog returns a log with the envelopes.
func NewLog(envs ...*events.Envelope) *Log {
	return &Log{envs: envs, grown: make(chan struct{}), Subscribed: make(chan struct{}, 10), Most: 50}
}

// Append appends envelopes and wakes the subscriptions that wait for more.
func (l *Log) Append(envs ...*events.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envs = append(l.envs, envs...)
	close(l.grown)
	l.grown = make(chan struct{})
}

// Fail makes every subscription return err from now on, the open ones included.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	l.Err = err
	l.mu.Unlock()
	l.Append()
}

// Subscribe returns a subscription that starts after the cursor. It is a [store.SubscribeFunc].
func (l *Log) Subscribe(from events.Cursor) (store.Subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err != nil {
		return nil, l.Err
	}
	l.From = append(l.From, from)
	l.Open++
	l.Subscribed <- struct{}{}
	return &subscription{log: l, next: conformance.IndexAfter(l.envs, from)}, nil
}

// subscription is a [store.Subscription] of a Log.
type subscription struct {
	log *Log
	// next is the index in the log of the envelope that is returned next.
	next int
}

// Next implements store.Subscription.
func (r *subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	for {
		r.log.mu.Lock()
		rest := r.log.envs[r.next:]
		grown := r.log.grown
		err := r.log.Err
		r.log.mu.Unlock()
		if err != nil {
			return nil, err
		}

		// At least one envelope is returned, even if it is larger than maxBytes.
		n := 0
		bytes := 0
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

// Head implements store.Subscription.
func (r *subscription) Head() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if len(r.log.envs) == 0 {
		return 0
	}
	return r.log.envs[len(r.log.envs)-1].Seq()
}

// Close implements store.Subscription.
func (r *subscription) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.Open--
}

// States records the states of a store in order. Its Add is a listener.
type States struct {
	mu   sync.Mutex
	seen []store.State
}

// Add records a state.
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
