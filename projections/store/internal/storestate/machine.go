// Package storestate has the state of a store as other goroutines see it and wait for it: what the fold is doing, the last visible
// position, and why it stopped.
//
//	Starting ──► CatchingUp ──► Ready ──► Stopped
//	                 │  ▲         │
//	                 ▼  │         │
//	                 Held ◄───────┘       Failed: from any, for good
package storestate

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/skein-feed/skein/projections"
)

// State is what a projection is doing: see package store, where the states have their public names.
type State uint8

// States, in the order of stateNames.
const (
	Starting State = iota
	CatchingUp
	Ready
	Rebuilding
	Failed
	Stopped
	Outdated
	Held
)

var stateNames = [...]string{"starting", "catching_up", "ready", "rebuilding", "failed", "stopped", "outdated", "held"}

// String returns the one name that the state has in metrics, pages and, after their prefix, in the values of the API.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// CaughtUp reports whether the projection has caught up with the head of the log as of the start, and continues.
func (s State) CaughtUp() bool { return s == Ready || s == Rebuilding }

// Machine is the state machine of one store. Its own lock is the innermost one: Pebble reports failures while it holds locks of its own,
// so under mu Machine calls nothing outside the package but the listener. A Machine begins with [Machine.Init].
type Machine struct {
	// failed is set before state, so that a reader without the lock never serves rows of a failed store as good.
	failed atomic.Bool
	// visible is the sequence of the last envelope that a view shows completely; -1 means none yet.
	visible atomic.Int64
	head    atomic.Uint64
	// down is closed when the projection fails or the store closes.
	down chan struct{}

	mu      sync.Mutex
	state   State
	err     error // the first failure
	held    error // why the fold is Held
	closed  bool
	waiters waiters
	// wanted is signaled when a caller begins to wait for a position.
	wanted chan struct{}
	// over is closed, and replaced, whenever all waiters are released.
	over    chan struct{}
	changed func(State, error)
}

// Init begins in the state Starting. changed is called with every new state, under the lock, so it must be quick and must not call back;
// nil disables it.
func (m *Machine) Init(changed func(State, error)) {
	m.visible.Store(-1)
	m.down, m.over, m.wanted = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	m.changed = changed
}

// Set changes the state. Failed is final, and a closed store only accepts Stopped.
func (m *Machine) Set(s State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(s)
}

func (m *Machine) setLocked(s State) {
	if m.state == s || m.state == Failed || (m.closed && s != Stopped) {
		return
	}
	m.state = s
	if s == Failed || s == Stopped {
		m.wake()
	}
	if m.changed != nil {
		m.changed(s, cmp.Or(m.err, m.held))
	}
}

// wake releases all waiters, whatever they wait for. Each looks again at why.
func (m *Machine) wake() {
	for _, w := range m.waiters {
		close(w.done)
	}
	m.waiters = nil
	close(m.over)
	m.over = make(chan struct{})
}

// Hold notes that the fold is held in front of a hole in the log. It releases all waiters, because nothing after the hole becomes
// visible until an operator acts.
func (m *Machine) Hold(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == Failed || m.closed {
		return
	}
	m.held = fmt.Errorf("the fold is held at sequence %d: %w", max(0, m.visible.Load()), err)
	m.setLocked(Held)
	m.wake()
}

func (m *Machine) isHeld() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held != nil
}

// Release notes that a held fold continues.
func (m *Machine) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		m.held = nil
		m.setLocked(CatchingUp)
	}
}

// Fail stops the projection. Only the first error counts; Fail returns that one, wrapped in [projections.ErrStopped].
func (m *Machine) Fail(err error) error {
	m.failed.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		m.setLocked(Failed)
		if !m.closed {
			close(m.down)
		}
	}
	return m.stoppedLocked()
}

// Close marks the store closed and reports whether it was open.
func (m *Machine) Close() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.closed = true
	m.setLocked(Stopped)
	m.wake()
	if m.err == nil {
		close(m.down)
	}
	return true
}

// Failure returns the error of Failed; nil means it has not failed.
func (m *Machine) Failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Stopped returns why nothing can be folded or read: the store has failed or is closed. nil means neither.
func (m *Machine) Stopped() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stoppedLocked()
}

func (m *Machine) stoppedLocked() error {
	switch {
	case m.err != nil:
		return fmt.Errorf("%w: %w", projections.ErrStopped, m.err)
	case m.closed:
		return projections.ErrClosed
	}
	return nil
}

// Reached notes that everything up to seq is visible, and releases the callers that wait for it.
func (m *Machine) Reached(seq uint64) {
	m.visible.Store(int64(seq))
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.waiters) > 0 && m.waiters[0].seq <= seq {
		close(heap.Pop(&m.waiters).(*waiter).done) //nolint:forcetypeassert // it holds nothing else
	}
}

// Has reports whether everything up to seq is visible.
func (m *Machine) Has(seq uint64) bool {
	visible := m.visible.Load()
	return visible >= 0 && uint64(visible) >= seq
}

// Visible returns the sequence of the last visible envelope. It is 0 as well before the first one.
func (m *Machine) Visible() uint64 { return uint64(max(0, m.visible.Load())) }

// HasFailed reports whether the projection has failed, without a lock.
func (m *Machine) HasFailed() bool { return m.failed.Load() }

// Down is closed when the projection fails or the store closes.
func (m *Machine) Down() <-chan struct{} { return m.down }

// Observe notes the head of the log, and changes the state to Ready once everything up to start, the head at the start of the process,
// is visible. Later lag does not count: while clients publish faster than the fold reads, it never reaches the present head.
func (m *Machine) Observe(start, head uint64) {
	m.head.Store(max(head, m.head.Load()))
	if m.Has(start) && !m.isHeld() {
		m.Set(Ready)
	}
}

// Head returns the last sequence that the log is known to have.
func (m *Machine) Head() uint64 { return m.head.Load() }

// State returns the state, and the error of Failed or Held; nil in all other states.
func (m *Machine) State() (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, cmp.Or(m.err, m.held)
}

// Over returns a channel that is closed when the waiters of now are released: by a failure, a stop or a hold.
func (m *Machine) Over() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// NoMore returns why the fold does not move: it has stopped, or is held. nil means that it moves.
func (m *Machine) NoMore() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == Stopped {
		return projections.ErrStopped
	}
	return m.held
}

// WaitFor blocks until a view shows everything up to seq. It returns the error of the context, [projections.ErrStopped] if the projection has
// failed or Run has ended, or the error of the hole while the fold is held in front of one.
func (m *Machine) WaitFor(ctx context.Context, seq uint64) error {
	if m.Has(seq) && !m.failed.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if over, err := m.overLocked(seq); over {
		return err
	}
	w := &waiter{seq: seq, done: make(chan struct{})}
	heap.Push(&m.waiters, w)
	m.want()
	// Taken again below, before the deferred Unlock.
	m.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	m.mu.Lock()
	// Reached and wake remove the waiters that they release; after the end of the context it is still in the heap.
	if w.index < len(m.waiters) && m.waiters[w.index] == w {
		heap.Remove(&m.waiters, w.index)
	}
	if over, err := m.overLocked(seq); over {
		return err
	}
	return ctx.Err()
}

// overLocked reports whether a wait for seq is over, and with which error; nil means that seq is visible.
func (m *Machine) overLocked(seq uint64) (over bool, err error) {
	switch {
	case m.err != nil:
		return true, m.stoppedLocked()
	case m.Has(seq):
		return true, nil
	case m.closed:
		return true, projections.ErrClosed
	case m.state == Stopped:
		return true, projections.ErrStopped
	case m.held != nil:
		return true, m.held
	}
	return false, nil
}

type waiter struct {
	seq   uint64
	done  chan struct{}
	index int // in the heap
}

// waiters is a heap: the lowest sequence first.
type waiters []*waiter

// Len is part of heap.Interface, as are the next four.
func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].seq < w[j].seq }

func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

func (w *waiters) Push(x any) {
	next := x.(*waiter) //nolint:forcetypeassert // it holds nothing else
	next.index = len(*w)
	*w = append(*w, next)
}

func (w *waiters) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return x
}
