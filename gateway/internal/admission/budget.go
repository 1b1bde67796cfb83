package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Unlimited is the limit of a class that has only a limit per caller.
const Unlimited = math.MaxInt64

// Class describes what a budget limits: calls, streams or pages of one class, or bytes of memory.
type Class struct {
	// Name is a plural noun, such as "reads", for errors and for the label "of" of the metrics.
	Name string
	// Limit is how much all callers together may hold.
	Limit int64
	// CallerLimit is how much one caller may hold. 0 means that only Limit counts.
	CallerLimit int64
	// Flag is the flag by which an operator changes these limits, for errors. It is empty if there
	// is none.
	Flag string
	// Queue is how many callers of [Budget.Wait] may wait at a time; 0 means any number.
	Queue int64
	// MaxWait is how long each of them waits; 0 means without a limit.
	MaxWait time.Duration
	// Shedder, if it is not nil, also makes [Budget.Take] refuse a share of the calls while
	// calls wait long for a processor.
	Shedder *LoadShedder
}

// Budget limits how much of one class is held at a time, by all callers together and by each
// caller. What exceeds the limit is refused at once ([Budget.Take]) or waits for its turn
// ([Budget.Wait]). Each class has its own budget, so that a flood of one class takes nothing from
// the others. A Budget may be used concurrently.
type Budget struct {
	Class

	// used may exceed the limit for a moment, while a call is refused.
	used    atomic.Int64
	refused atomic.Uint64

	// turns admits the callers of Wait in the order in which they came.
	turns   *semaphore.Weighted
	waiting atomic.Int64

	// mu guards byCaller and highest, which are maintained only if there is a limit per caller.
	mu       sync.Mutex
	byCaller map[string]int64
	// highest is the largest value that used has had.
	highest int64
}

// NewBudget returns a budget of which nothing is held.
func NewBudget(class Class) *Budget {
	return &Budget{Class: class, turns: semaphore.NewWeighted(class.Limit), byCaller: map[string]int64{}}
}

// Take takes n for a caller. It returns nil if it has, and then the caller of Take must give n back
// with [Budget.Release]. Otherwise it returns why it refuses.
func (b *Budget) Take(caller string, n int64) *apierror.Failure {
	f := b.takeOrRefuse(caller, n)
	if f != nil {
		b.refused.Add(1)
	}
	return f
}

// takeOrRefuse is Take without the count of refusals.
func (b *Budget) takeOrRefuse(caller string, n int64) *apierror.Failure {
	if b.Shedder != nil {
		if f := b.Shedder.admit(); f != nil {
			return f
		}
	}
	if b.CallerLimit == 0 {
		return b.takeFromAll(n)
	}

	// The limit of the caller comes first, and the lock is held for both limits. So a call that is
	// refused for its caller never counts in used, where it would take the room of other callers.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byCaller[caller]+n > b.CallerLimit {
		return &apierror.Failure{
			Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT, Retry: apierror.RetrySoon,
			Text: fmt.Sprintf("one caller may have %d %s at a time%s; nothing was done", b.CallerLimit, b.Name, b.flagText()),
		}
	}
	if f := b.takeFromAll(n); f != nil {
		return f
	}
	b.byCaller[caller] += n
	b.highest = max(b.highest, b.used.Load())
	return nil
}

// takeFromAll takes n from what all callers share, or returns why it refuses.
func (b *Budget) takeFromAll(n int64) *apierror.Failure {
	// Add first and check then: with a check before, two calls could both take the last place.
	if b.used.Add(n) > b.Limit {
		b.used.Add(-n)
		return b.overloadedError()
	}
	return nil
}

// Release gives back what Take has taken for a caller.
func (b *Budget) Release(caller string, n int64) {
	b.used.Add(-n)
	if b.CallerLimit == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.byCaller[caller] -= n
	if b.byCaller[caller] <= 0 {
		delete(b.byCaller, caller) // the map has only callers that hold something
	}
}

// Wait takes 1 of the budget, and blocks while others hold all of it. It fails at once if the queue
// is full, and later if the patience of the class or ctx ends first. If it returns nil, the caller
// must call [Budget.Done]. All users of one budget must use either Wait or Take.
func (b *Budget) Wait(ctx context.Context) error {
	// A free turn is taken without a place in the queue, and without a timer.
	if !b.turns.TryAcquire(1) {
		if err := b.waitForTurn(ctx); err != nil {
			return err
		}
	}
	b.used.Add(1)
	return nil
}

func (b *Budget) waitForTurn(ctx context.Context) error {
	refusal := b.overloadedError()
	waiting := b.waiting.Add(1)
	defer b.waiting.Add(-1)
	if b.Queue > 0 && waiting > b.Queue {
		b.refused.Add(1)
		return refusal
	}

	if b.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.MaxWait, refusal)
		defer cancel()
	}
	if b.turns.Acquire(ctx, 1) == nil {
		return nil
	}

	// Either the patience has ended, or the call itself.
	cause := context.Cause(ctx)
	if errors.Is(cause, refusal) {
		b.refused.Add(1)
	}
	return cause
}

// Done gives back the 1 that Wait has taken.
func (b *Budget) Done() {
	b.used.Add(-1)
	b.turns.Release(1)
}

// overloadedError is the error of what exceeds the limit for all callers together.
func (b *Budget) overloadedError() *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
		Text: fmt.Sprintf("the service allows %d %s at a time%s, and others have taken them; nothing was done", b.Limit, b.Name, b.flagText()),
	}
}

// flagText returns the part of an error that names the flag, or "".
func (b *Budget) flagText() string {
	if b.Flag == "" {
		return ""
	}
	return " (set by " + b.Flag + ")"
}

// Used returns how much is held.
func (b *Budget) Used() int64 { return b.used.Load() }

// Waiting returns how many callers of [Budget.Wait] wait.
func (b *Budget) Waiting() int64 { return b.waiting.Load() }

// Refused returns how often the budget has refused.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Peak returns the most that was held at a time. It is 0 if there is no limit per caller.
func (b *Budget) Peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.highest
}

const (
	// FreeBytes is how many bytes of each body and of each answer are not counted, because the
	// limits of connections and calls already bound their memory.
	FreeBytes = 4 << 10
	// HeldPerByte is how many bytes of memory count for each byte of a body or answer, which is in
	// memory both encoded and decoded.
	HeldPerByte = 2
)

// Reservation is what one call holds of a budget of bytes. It must not be used concurrently, nor
// copied: the copy would give the same bytes back a second time.
type Reservation struct {
	_ [0]sync.Mutex // takes no memory, and makes go vet report copies

	budget *Budget
	caller string
	// free is how many bytes may still be held without being counted.
	free int64
	held int64
}

// NewReservation returns the holding of a call. Its first [FreeBytes] bytes are not counted.
func NewReservation(budget *Budget, caller string) Reservation {
	return Reservation{budget: budget, caller: caller, free: FreeBytes}
}

// ChargeTo sets the budget and the caller of a reservation that holds nothing. A zero Reservation,
// to which ChargeTo gives a budget, counts every byte.
func (h *Reservation) ChargeTo(budget *Budget, caller string) { h.budget, h.caller = budget, caller }

// Caller returns the caller for whom the bytes count.
func (h *Reservation) Caller() string { return h.caller }

// Hold takes n bytes of the budget. It returns nil if it has, and otherwise why it refuses.
func (h *Reservation) Hold(n int64) *apierror.Failure {
	free := min(n, h.free)
	h.free -= free
	n -= free
	if n == 0 {
		return nil
	}
	if f := h.budget.Take(h.caller, n); f != nil {
		return f
	}
	h.held += n
	return nil
}

// Release gives back everything that the call holds.
func (h *Reservation) Release() {
	if h.held > 0 {
		h.budget.Release(h.caller, h.held)
		h.held = 0
	}
}
