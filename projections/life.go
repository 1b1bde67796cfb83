package projections

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// State is what a projection is doing.
type State uint8

// States. Ready is having caught up with the head of the log as of the start; it stays until the projection stops, whatever the lag.
const (
	Starting State = iota
	CatchingUp
	Ready
	// Rebuilding is a [Live] that is Ready while another generation is folded beside it: a rebuild, or a rollback.
	Rebuilding
	Failed
	Stopped
	// Outdated is a [Live] whose generation was built by another fold, or with other settings, than the program has: it does
	// not continue, and answers from where it stands, if its rows can be read, until it is rebuilt.
	Outdated
	// Held is in front of a hole of the log ([events.ErrHole]): queries are answered from there, and the fold continues by
	// itself when the hole is closed or accepted.
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

// life is what others may know and wait for: it has its own lock, under which no call leaves the package but that
// of the listener, since Pebble reports failures while it holds locks.
type life struct {
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
	// wanted is signalled when somebody begins to wait.
	wanted chan struct{}
	// over is closed and made anew where every waiting ends.
	over    chan struct{}
	changed func(State, error)
}

func (l *life) init(changed func(State, error)) {
	l.visible.Store(-1)
	l.down, l.over, l.wanted = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	l.changed = changed
}

func (l *life) set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(s)
}

func (l *life) setLocked(s State) {
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
func (l *life) wake() {
	for _, w := range l.waiters {
		close(w.done)
	}
	l.waiters = nil
	close(l.over)
	l.over = make(chan struct{})
}

// hold notes that the fold is in front of a hole, and ends the waiting for what comes after it.
func (l *life) hold(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Failed || l.closed {
		return
	}
	l.held = fmt.Errorf("the fold is held at sequence %d: %w", max(0, l.visible.Load()), err)
	l.setLocked(Held)
	l.wake()
}

func (l *life) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

// release notes that the fold continues.
func (l *life) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		l.held = nil
		l.setLocked(CatchingUp)
	}
}

// fail stops the projection for its first error and returns that, wrapped.
func (l *life) fail(err error) error {
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

// close marks the store closed and reports whether it was open.
func (l *life) close() bool {
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

func (l *life) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// stopped returns why nothing can be folded or read: the store failed or is closed.
func (l *life) stopped() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stoppedLocked()
}

func (l *life) stoppedLocked() error {
	switch {
	case l.err != nil:
		return fmt.Errorf("%w: %w", ErrStopped, l.err)
	case l.closed:
		return ErrClosed
	}
	return nil
}

// reached makes a position known to those who wait for it.
func (l *life) reached(seq uint64) {
	l.visible.Store(int64(seq))
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiters) > 0 && l.waiters[0].seq <= seq {
		close(heap.Pop(&l.waiters).(*waiter).done) //nolint:forcetypeassert // it holds nothing else
	}
}

func (l *life) has(seq uint64) bool {
	visible := l.visible.Load()
	return visible >= 0 && uint64(visible) >= seq
}

// WaitFor blocks until a view shows everything up to seq. It fails with the error of the context, or with
// [ErrStopped] when the projection will not get there: it failed, or Run has ended; with [events.ErrHole] while the fold is
// held in front of a hole.
func (s *Store) WaitFor(ctx context.Context, seq uint64) error {
	l := &s.life
	if l.has(seq) && !l.failed.Load() {
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
func (l *life) overLocked(seq uint64) (over bool, err error) {
	switch {
	case l.err != nil:
		return true, l.stoppedLocked()
	case l.has(seq):
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
