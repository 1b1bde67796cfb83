// Package storestate has the state of a store as other goroutines see it: what the fold is doing,
// the last visible position, and why the store has stopped. Goroutines wait here for positions.
//
//	Starting ──► CatchingUp ──► Ready ──► Stopped
//	                 │  ▲         │
//	                 ▼  │         │
//	                 Held ◄───────┘       Failed: from any state, and final
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

// State is what a projection is doing. Package store has the public names of the states and
// explains them.
type State uint8

// The states, in the order of stateNames.
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

// String returns the name of the state. Metrics and web pages use the same name, and so do the
// values of the API, after their prefix.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// CaughtUp reports whether the fold has reached the position that the log had when the fold began,
// and has not stopped since.
func (s State) CaughtUp() bool { return s == Ready || s == Rebuilding }

// Machine is the state machine of one store. It must be initialized with [Machine.Init].
//
// Its lock is the innermost one, because Pebble reports failures while it holds locks of its own.
// While it holds mu, Machine therefore calls nothing outside of this package except onStateChanged.
type Machine struct {
	// failed is set before state, so that a reader that does not take the lock never serves rows of
	// a failed store.
	failed atomic.Bool
	// visible is the sequence of the last envelope that views show completely, or -1 before the
	// first.
	visible atomic.Int64
	// head is the last sequence that the log is known to have.
	head atomic.Uint64
	// down is closed when the projection fails or the store is closed.
	down chan struct{}

	mu         sync.Mutex
	state      State
	failure    error // the first error passed to Fail
	holdReason error // why the state is Held; nil in other states
	closed     bool
	waiters    waiterHeap
	// waiterAdded receives a value when a caller begins to wait for a position. It holds one value,
	// so the sender never blocks.
	waiterAdded chan struct{}
	// waitersReleased is closed, and replaced, when all waiters are released.
	waitersReleased chan struct{}
	onStateChanged  func(State, error)
}

// Init sets the state Starting. onStateChanged, if not nil, is called with every new state and with
// the reason for Failed or Held. It is called with the lock held, so it must be quick and must not
// call the Machine.
func (m *Machine) Init(onStateChanged func(State, error)) {
	m.visible.Store(-1)
	m.down = make(chan struct{})
	m.waitersReleased = make(chan struct{})
	m.waiterAdded = make(chan struct{}, 1)
	m.onStateChanged = onStateChanged
}

// SetState changes the state. It does nothing if the state is Failed, or if the store is closed and
// s is not Stopped.
func (m *Machine) SetState(s State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setStateLocked(s)
}

func (m *Machine) setStateLocked(s State) {
	if m.state == s || m.state == Failed || (m.closed && s != Stopped) {
		return
	}
	m.state = s
	if s == Failed || s == Stopped {
		m.releaseWaitersLocked()
	}
	if m.onStateChanged != nil {
		m.onStateChanged(s, cmp.Or(m.failure, m.holdReason))
	}
}

// releaseWaitersLocked wakes all waiters, whichever position they wait for. Each then asks
// waitResultLocked for the reason.
func (m *Machine) releaseWaitersLocked() {
	for _, w := range m.waiters {
		close(w.done)
	}
	m.waiters = nil
	close(m.waitersReleased)
	m.waitersReleased = make(chan struct{})
}

// Hold changes the state to Held, because the fold is in front of a hole of the log. err describes
// the hole. Hold releases all waiters, because nothing behind the hole becomes visible before an
// operator acts.
func (m *Machine) Hold(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == Failed || m.closed {
		return
	}
	m.holdReason = fmt.Errorf("the fold is held at sequence %d: %w", max(0, m.visible.Load()), err)
	m.setStateLocked(Held)
	m.releaseWaitersLocked() // setStateLocked does so for Failed and Stopped only
}

func (m *Machine) isHeld() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holdReason != nil
}

// Release ends the state Held, because the fold continues. It does nothing in other states.
func (m *Machine) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holdReason != nil {
		m.holdReason = nil
		m.setStateLocked(CatchingUp)
	}
}

// Fail changes the state to Failed. Only the error of the first call counts. Fail returns that
// error, wrapped in [projections.ErrStopped].
func (m *Machine) Fail(err error) error {
	m.failed.Store(true)

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure == nil {
		m.failure = err
		m.setStateLocked(Failed)
		if !m.closed { // Close has closed down
			close(m.down)
		}
	}
	return m.stopErrorLocked()
}

// Close marks the store as closed. It returns false if the store was closed already.
func (m *Machine) Close() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.closed = true
	m.setStateLocked(Stopped)
	m.releaseWaitersLocked() // also if the state was Stopped or Failed before
	if m.failure == nil {    // Fail has closed down
		close(m.down)
	}
	return true
}

// Failure returns the error that made the projection fail, or nil if it has not failed.
func (m *Machine) Failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failure
}

// StopError returns why nothing can be folded or read: an error that wraps [projections.ErrStopped]
// if the projection has failed, or [projections.ErrClosed] if the store is closed. Otherwise it
// returns nil.
func (m *Machine) StopError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopErrorLocked()
}

func (m *Machine) stopErrorLocked() error {
	switch {
	case m.failure != nil:
		return fmt.Errorf("%w: %w", projections.ErrStopped, m.failure)
	case m.closed:
		return projections.ErrClosed
	}
	return nil
}

// SetVisible records that views show everything up to seq, and releases the callers that wait for
// that.
func (m *Machine) SetVisible(seq uint64) {
	m.visible.Store(int64(seq))

	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.waiters) > 0 && m.waiters[0].seq <= seq {
		close(heap.Pop(&m.waiters).(*waiter).done) //nolint:forcetypeassert // the heap has only waiters
	}
}

// IsVisible reports whether views show everything up to seq.
func (m *Machine) IsVisible(seq uint64) bool {
	visible := m.visible.Load()
	return visible >= 0 && uint64(visible) >= seq
}

// Visible returns the sequence of the last visible envelope, or 0 before the first.
func (m *Machine) Visible() uint64 { return uint64(max(0, m.visible.Load())) }

// HasFailed reports whether the projection has failed. It takes no lock.
func (m *Machine) HasFailed() bool { return m.failed.Load() }

// Down returns a channel that is closed when the projection fails or the store is closed.
func (m *Machine) Down() <-chan struct{} { return m.down }

// ObserveHead records the head of the log. It changes the state to Ready once everything up to
// start is visible, which is the head that the log had when Run began. The present head does not
// count: as long as clients publish faster than the fold reads, it is never reached.
func (m *Machine) ObserveHead(start, head uint64) {
	m.head.Store(max(head, m.head.Load()))
	if m.IsVisible(start) && !m.isHeld() {
		m.SetState(Ready)
	}
}

// Head returns the last sequence that the log is known to have.
func (m *Machine) Head() uint64 { return m.head.Load() }

// State returns the state, and the reason if it is Failed or Held.
func (m *Machine) State() (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, cmp.Or(m.failure, m.holdReason)
}

// WaitersReleased returns a channel that is closed the next time that all waiters are released:
// when the projection fails, stops or is held.
func (m *Machine) WaitersReleased() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waitersReleased
}

// HaltReason returns why the fold does not advance: [projections.ErrStopped] if Run has ended, or
// the error of the hole while the fold is held. It returns nil if the fold may advance, and also if
// it has failed (see [Machine.StopError]).
func (m *Machine) HaltReason() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == Stopped {
		return projections.ErrStopped
	}
	return m.holdReason
}

// WaitFor blocks until views show everything up to seq. It fails with the error of the context,
// with [projections.ErrStopped] if the projection has failed or Run has ended, and with the error
// of the hole while the fold is held.
func (m *Machine) WaitFor(ctx context.Context, seq uint64) error {
	if m.IsVisible(seq) && !m.failed.Load() {
		return nil
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if over, err := m.waitResultLocked(seq); over {
		return err
	}
	w := &waiter{seq: seq, done: make(chan struct{})}
	heap.Push(&m.waiters, w)
	m.signalWaiterAdded()

	// Wait without the lock. The deferred Unlock needs it again.
	m.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	m.mu.Lock()

	// SetVisible and releaseWaitersLocked remove the waiters that they release. After the end of
	// the context, w is still in the heap.
	if w.index < len(m.waiters) && m.waiters[w.index] == w {
		heap.Remove(&m.waiters, w.index)
	}
	if over, err := m.waitResultLocked(seq); over {
		return err
	}
	return ctx.Err()
}

// waitResultLocked reports whether a wait for seq is over, and returns its result: nil if seq is
// visible, and otherwise the reason why it will not become visible.
func (m *Machine) waitResultLocked(seq uint64) (over bool, err error) {
	switch {
	case m.failure != nil:
		return true, m.stopErrorLocked()
	case m.IsVisible(seq):
		return true, nil
	case m.closed:
		return true, projections.ErrClosed
	case m.state == Stopped:
		return true, projections.ErrStopped
	case m.holdReason != nil:
		return true, m.holdReason
	}
	return false, nil
}

// waiter is a caller of WaitFor that waits.
type waiter struct {
	seq   uint64
	done  chan struct{}
	index int // in the heap
}

// waiterHeap is a heap of waiters with the lowest sequence first. It implements [heap.Interface].
type waiterHeap []*waiter

// Len implements [heap.Interface].
func (w waiterHeap) Len() int { return len(w) }

// Less implements [heap.Interface].
func (w waiterHeap) Less(i, j int) bool { return w[i].seq < w[j].seq }

// Swap implements [heap.Interface].
func (w waiterHeap) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index = i
	w[j].index = j
}

// Push implements [heap.Interface].
func (w *waiterHeap) Push(x any) {
	added := x.(*waiter) //nolint:forcetypeassert // the heap has only waiters
	added.index = len(*w)
	*w = append(*w, added)
}

// Pop implements [heap.Interface].
func (w *waiterHeap) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = nil // so that it can be freed
	*w = (*w)[:last]
	return x
}
