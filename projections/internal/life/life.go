// Package life has the state of a store as other goroutines see it and wait for it: what the fold is doing, the last visible position,
// and why it stopped.
//
//	Starting ──► CatchingUp ──► Ready ──► Stopped
//	                 │  ▲         │
//	                 ▼  │         │
//	                 Held ◄───────┘       Failed: from any, for good
package life

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// State is what a projection is doing: see package projections, where the states have their public names.
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

// Errors of a store that no longer folds.
var (
	ErrStopped = errors.New("projections: stopped")
	// ErrClosed wraps ErrStopped.
	ErrClosed = fmt.Errorf("%w: the store is closed", ErrStopped)
)

// Life is the life of one store. Its own lock is the innermost one: Pebble reports failures while it holds locks of its own, so under
// mu Life calls nothing outside the package but the listener. A Life begins with [Life.Init].
type Life struct {
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

// Init begins a life. changed is called with every new state, under the lock, so it must be quick and must not call back; nil disables it.
func (l *Life) Init(changed func(State, error)) {
	l.visible.Store(-1)
	l.down, l.over, l.wanted = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	l.changed = changed
}

// Set changes the state. Failed is final, and a closed store only accepts Stopped.
func (l *Life) Set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(s)
}

func (l *Life) setLocked(s State) {
	if l.state == s || l.state == Failed || (l.closed && s != Stopped) {
		return
	}
	l.state = s
	if s == Failed || s == Stopped {
		l.wake()
	}
	if l.changed != nil {
		l.changed(s, cmp.Or(l.err, l.held))
	}
}

// wake releases all waiters, whatever they wait for. Each looks again at why.
func (l *Life) wake() {
	for _, w := range l.waiters {
		close(w.done)
	}
	l.waiters = nil
	close(l.over)
	l.over = make(chan struct{})
}

// Hold notes that the fold is held in front of a hole in the log. It releases all waiters, because nothing after the hole becomes
// visible until an operator acts.
func (l *Life) Hold(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Failed || l.closed {
		return
	}
	l.held = fmt.Errorf("the fold is held at sequence %d: %w", max(0, l.visible.Load()), err)
	l.setLocked(Held)
	l.wake()
}

func (l *Life) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

// Release notes that a held fold continues.
func (l *Life) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		l.held = nil
		l.setLocked(CatchingUp)
	}
}

// Fail stops the projection. Only the first error counts; Fail returns that one, wrapped in [ErrStopped].
func (l *Life) Fail(err error) error {
	l.failed.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.setLocked(Failed)
		if !l.closed {
			close(l.down)
		}
	}
	return l.stoppedLocked()
}

// Close marks the store closed and reports whether it was open.
func (l *Life) Close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	l.setLocked(Stopped)
	l.wake()
	if l.err == nil {
		close(l.down)
	}
	return true
}

// Failure returns the error of Failed; nil means it has not failed.
func (l *Life) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Stopped returns why nothing can be folded or read: the store has failed or is closed. nil means neither.
func (l *Life) Stopped() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stoppedLocked()
}

func (l *Life) stoppedLocked() error {
	switch {
	case l.err != nil:
		return fmt.Errorf("%w: %w", ErrStopped, l.err)
	case l.closed:
		return ErrClosed
	}
	return nil
}

// Reached notes that everything up to seq is visible, and releases the callers that wait for it.
func (l *Life) Reached(seq uint64) {
	l.visible.Store(int64(seq))
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiters) > 0 && l.waiters[0].seq <= seq {
		close(heap.Pop(&l.waiters).(*waiter).done) //nolint:forcetypeassert // it holds nothing else
	}
}

// Has reports whether everything up to seq is visible.
func (l *Life) Has(seq uint64) bool {
	visible := l.visible.Load()
	return visible >= 0 && uint64(visible) >= seq
}

// Visible returns the sequence of the last visible envelope. It is 0 as well before the first one.
func (l *Life) Visible() uint64 { return uint64(max(0, l.visible.Load())) }

// HasFailed reports whether the projection has failed, without a lock.
func (l *Life) HasFailed() bool { return l.failed.Load() }

// Down is closed when the projection fails or the store closes.
func (l *Life) Down() <-chan struct{} { return l.down }

// Observe notes the head of the log, and changes the state to Ready once everything up to start, the head at the start of the process,
// is visible. Later lag does not count: while clients publish faster than the fold reads, it never reaches the present head.
func (l *Life) Observe(start, head uint64) {
	l.head.Store(max(head, l.head.Load()))
	if l.Has(start) && !l.isHeld() {
		l.Set(Ready)
	}
}

// Head returns the last sequence that the log is known to have.
func (l *Life) Head() uint64 { return l.head.Load() }

// State returns the state, and the error of Failed or Held; nil in all other states.
func (l *Life) State() (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, cmp.Or(l.err, l.held)
}

// Over returns a channel that is closed when the waiters of now are released: by a failure, a stop or a hold.
func (l *Life) Over() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// NoMore returns why the fold does not move: it has stopped, or is held. nil means that it moves.
func (l *Life) NoMore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Stopped {
		return ErrStopped
	}
	return l.held
}

// WaitFor blocks until a view shows everything up to seq. It returns the error of the context, [ErrStopped] if the projection has
// failed or Run has ended, or the error of the hole while the fold is held in front of one.
func (l *Life) WaitFor(ctx context.Context, seq uint64) error {
	if l.Has(seq) && !l.failed.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if over, err := l.overLocked(seq); over {
		return err
	}
	w := &waiter{seq: seq, done: make(chan struct{})}
	heap.Push(&l.waiters, w)
	l.want()
	// Taken again below, before the deferred Unlock.
	l.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	l.mu.Lock()
	// Reached and wake remove the waiters that they release; after the end of the context it is still in the heap.
	if w.index < len(l.waiters) && l.waiters[w.index] == w {
		heap.Remove(&l.waiters, w.index)
	}
	if over, err := l.overLocked(seq); over {
		return err
	}
	return ctx.Err()
}

// overLocked reports whether a wait for seq is over, and with which error; nil means that seq is visible.
func (l *Life) overLocked(seq uint64) (over bool, err error) {
	switch {
	case l.err != nil:
		return true, l.stoppedLocked()
	case l.Has(seq):
		return true, nil
	case l.closed:
		return true, ErrClosed
	case l.state == Stopped:
		return true, ErrStopped
	case l.held != nil:
		return true, l.held
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
