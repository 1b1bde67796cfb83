// Package life is what others may know of a store that folds, and wait for: its state, the last position that is visible, and why it
// stopped.
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

// States, in the order of their names.
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

// Errors of a store that folds no more.
var (
	ErrStopped = errors.New("projections: stopped")
	// ErrClosed is an ErrStopped.
	ErrClosed = fmt.Errorf("%w: the store is closed", ErrStopped)
)

// Life is that of one store. It has its own lock, under which no call leaves the package but that of the listener, since Pebble
// reports failures while it holds locks. It begins with [Life.Init].
type Life struct {
	// failed is set before the state is.
	failed atomic.Bool
	// visible is the sequence of the last whole position; -1 means none yet.
	visible atomic.Int64
	head    atomic.Uint64
	// down is closed when the projection fails or the store closes.
	down chan struct{}

	mu      sync.Mutex
	state   State
	err     error // of a failure
	held    error // why the fold is Held
	closed  bool
	waiters waiters
	// wanted is signalled when a caller begins to wait for a position.
	wanted chan struct{}
	// over is closed and made anew where every waiting ends.
	over    chan struct{}
	changed func(State, error)
}

// Init begins a life. changed is called with every new state; it may be nil.
func (l *Life) Init(changed func(State, error)) {
	l.visible.Store(-1)
	l.down, l.over, l.wanted = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	l.changed = changed
}

// Set notes a new state. After Failed there is none, after a close only Stopped.
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

// wake ends every waiting.
func (l *Life) wake() {
	for _, w := range l.waiters {
		close(w.done)
	}
	l.waiters = nil
	close(l.over)
	l.over = make(chan struct{})
}

// Hold notes that the fold is in front of a hole, and ends the waiting for what comes after it.
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

// Release notes that the fold continues.
func (l *Life) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		l.held = nil
		l.setLocked(CatchingUp)
	}
}

// Fail stops the projection for its first error and returns that, wrapped.
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

// Stopped returns why nothing can be folded or read: the store failed or is closed.
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

// Reached makes a position known to those who wait for it.
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

// Visible returns the sequence of the last whole position; 0 is also that of none yet.
func (l *Life) Visible() uint64 { return uint64(max(0, l.visible.Load())) }

// HasFailed reports whether the projection has failed, without a lock.
func (l *Life) HasFailed() bool { return l.failed.Load() }

// Down is closed when the projection fails or the store closes.
func (l *Life) Down() <-chan struct{} { return l.down }

// Observe notes how far the log goes, and whether the projection has caught up with the head as of the start. Later lag does not
// count: while publishing outruns the fold, the present head is never reached.
func (l *Life) Observe(start, head uint64) {
	l.head.Store(max(head, l.head.Load()))
	if l.Has(start) && !l.isHeld() {
		l.Set(Ready)
	}
}

// Head returns the last sequence that the log is known to have.
func (l *Life) Head() uint64 { return l.head.Load() }

// State returns the state, and why it is Failed or Held.
func (l *Life) State() (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, cmp.Or(l.err, l.held)
}

// Over is closed where every waiting that has begun by now ends.
func (l *Life) Over() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// NoMore returns why the store does not move any more, or not now; nil means that it does.
func (l *Life) NoMore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Stopped {
		return ErrStopped
	}
	return l.held
}

// WaitFor blocks until a view shows everything up to seq. It fails with the error of the context, or with
// [ErrStopped] when the projection will not get there: it failed, or Run has ended; with the error of
// the hole while the fold is held in front of a hole.
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
	l.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	l.mu.Lock()
	if w.index < len(l.waiters) && l.waiters[w.index] == w {
		heap.Remove(&l.waiters, w.index)
	}
	if over, err := l.overLocked(seq); over {
		return err
	}
	return ctx.Err()
}

// overLocked reports whether waiting for seq has come to its end, and to which.
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
	index int
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
