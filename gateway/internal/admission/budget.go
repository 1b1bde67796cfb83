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

// Unlimited is the limit of a class that only each caller is bounded by.
const Unlimited = math.MaxInt64

// Class describes what a budget bounds: one class of calls, of streams, of pages, or bytes of memory.
type Class struct {
	// Name is a plural noun for errors and for the label "of" of the metrics: "reads".
	Name string
	// Limit is how much all callers together may hold.
	Limit int64
	// CallerLimit is how much one caller may hold. 0 means as much as all together.
	CallerLimit int64
	// Flag names the flag by which an operator changes these limits, for errors; empty means that there is none.
	Flag string
	// Queue is how many callers of [Budget.Wait] may wait at a time, and Patience how long each of them waits; 0 means without a limit.
	Queue    int64
	Patience time.Duration
	// Processors, if it is set, also refuses a part of what is taken while calls wait long for a processor.
	Processors *Processors
}

// Budget bounds how much of one class is held at a time, by all callers together and by each of them. What is beyond the limit is
// refused at once ([Budget.Take]), or waits for its turn ([Budget.Wait]). Each class has a budget of its own, so that a flood of one
// class takes nothing from the others. A Budget is safe for concurrent use.
type Budget struct {
	Class

	// used may exceed the limit for a moment, while something is refused.
	used    atomic.Int64
	refused atomic.Uint64

	// turns gives those who wait their turns, in the order in which they came. Only Wait uses it.
	turns   *semaphore.Weighted
	waiting atomic.Int64

	// mu guards byCaller and highest, which are kept only if there is a limit per caller.
	mu       sync.Mutex
	byCaller map[string]int64
	// highest is the largest value that used has had.
	highest int64
}

// NewBudget returns a budget of which nothing is held.
func NewBudget(class Class) *Budget {
	return &Budget{Class: class, turns: semaphore.NewWeighted(class.Limit), byCaller: map[string]int64{}}
}

// Take takes n for a caller, or refuses it. The caller of Take must give back what it has taken, with [Budget.Give].
func (b *Budget) Take(caller string, n int64) *apierror.Failure {
	f := b.takeOrRefuse(caller, n)
	if f != nil {
		b.refused.Add(1)
	}
	return f
}

func (b *Budget) takeOrRefuse(caller string, n int64) *apierror.Failure {
	if p := b.Processors; p != nil {
		if f := p.admit(); f != nil {
			return f
		}
	}
	if b.used.Add(n) > b.Limit {
		b.used.Add(-n)
		return b.overloadedError()
	}
	if b.CallerLimit == 0 {
		return nil
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byCaller[caller]+n > b.CallerLimit {
		b.used.Add(-n)
		return &apierror.Failure{
			Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT, Retry: apierror.RetrySoon,
			Text: fmt.Sprintf("one caller may have %d %s at a time%s; nothing was done", b.CallerLimit, b.Name, b.flagText()),
		}
	}
	b.byCaller[caller] += n
	b.highest = max(b.highest, b.used.Load())
	return nil
}

// Give gives back what Take has taken for a caller.
func (b *Budget) Give(caller string, n int64) {
	b.used.Add(-n)
	if b.CallerLimit == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byCaller[caller] -= n; b.byCaller[caller] <= 0 {
		delete(b.byCaller, caller)
	}
}

// Wait takes 1 of the budget, and waits for it while others hold all. It fails at once if too many wait already, and later if the
// patience of the class or the context ends first. Otherwise the caller must call [Budget.Done]. The callers of one budget either
// all wait, or all use Take.
func (b *Budget) Wait(ctx context.Context) error {
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
	defer b.waiting.Add(-1)
	if waiting := b.waiting.Add(1); b.Queue > 0 && waiting > b.Queue {
		b.refused.Add(1)
		return refusal
	}
	if b.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.Patience, refusal)
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

// Done gives back what Wait has taken.
func (b *Budget) Done() {
	b.used.Add(-1)
	b.turns.Release(1)
}

// overloaded is the refusal of what exceeds the limit for all callers together.
func (b *Budget) overloadedError() *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
		Text: fmt.Sprintf("the service allows %d %s at a time%s, and others have taken them; nothing was done", b.Limit, b.Name, b.flagText()),
	}
}

// byFlag returns the flag as a part of an error.
func (b *Budget) flagText() string {
	if b.Flag == "" {
		return ""
	}
	return " (set by " + b.Flag + ")"
}

// Used returns how much is held.
func (b *Budget) Used() int64 { return b.used.Load() }

// Waiting returns how many callers wait.
func (b *Budget) Waiting() int64 { return b.waiting.Load() }

// Refused returns how often something was refused.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Highest returns the most that was held at a time, if there is a limit per caller.
func (b *Budget) Highest() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.highest
}

const (
	// FreeBytes of each body and of each answer are not counted: the limits of connections and of calls bound these.
	FreeBytes = 4 << 10
	// HeldPerByte is how often a byte of a body is held: as it came, and decoded.
	HeldPerByte = 2
)

// Holding is what one call holds of a budget of bytes. It belongs to one goroutine.
type Holding struct {
	budget *Budget
	caller string
	// free is how many bytes may still be held without being counted.
	free int64
	held int64
}

// NewHolding returns the holding of a call of which the first [FreeBytes] are not counted.
func NewHolding(budget *Budget, caller string) Holding {
	return Holding{budget: budget, caller: caller, free: FreeBytes}
}

// ChargeTo sets the budget and the caller of a holding that holds nothing. A zero Holding counts every byte.
func (h *Holding) ChargeTo(budget *Budget, caller string) { h.budget, h.caller = budget, caller }

// Caller returns the caller for whom bytes are held.
func (h *Holding) Caller() string { return h.caller }

// Hold takes n bytes, or refuses them.
func (h *Holding) Hold(n int64) *apierror.Failure {
	free := min(n, h.free)
	h.free -= free
	if n -= free; n == 0 {
		return nil
	}
	if f := h.budget.Take(h.caller, n); f != nil {
		return f
	}
	h.held += n
	return nil
}

// Release gives everything back.
func (h *Holding) Release() {
	if h.held > 0 {
		h.budget.Give(h.caller, h.held)
		h.held = 0
	}
}
