package admission

import (
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// CallerRates limits how many calls per second each caller may make, so that a caller who calls all
// the time is refused before others notice. Callers are distinguished by name: all tokens with one
// name share a rate, and so do all calls if there is no access control.
type CallerRates struct {
	perSecond float64
	burst     int

	mu sync.Mutex
	// limiters has one limiter per caller, by name.
	limiters map[string]*rate.Limiter
	// maxLimiters is the number of limiters at which the next new caller makes Take drop those that
	// are not needed.
	maxLimiters int
}

// minLimiters is the smallest value of maxLimiters. That many limiters take about 2 MB.
const minLimiters = 10_000

// NewCallerRates returns limits of perSecond calls. A caller who was silent may make burst calls at
// once. If perSecond is 0 or less, it returns nil, which limits nothing.
func NewCallerRates(perSecond float64, burst int) *CallerRates {
	if perSecond <= 0 {
		return nil
	}
	return &CallerRates{perSecond: perSecond, burst: burst, limiters: map[string]*rate.Limiter{}, maxLimiters: minLimiters}
}

// Take counts a call of a caller, or returns why it refuses the call. A refused call does not
// count. Nil CallerRates refuse nothing.
func (c *CallerRates) Take(caller string, now time.Time) *apierror.Failure {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	r := c.limiter(caller, now).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT, Retry: max(wait, time.Millisecond),
		Text: fmt.Sprintf("the caller makes more than %v calls a second (set by --caller-rate); nothing was done", c.perSecond),
	}
}

// limiter returns the limiter of a caller, and makes one for a new caller. If there are too many,
// it first drops the limiters of all callers who may make a whole burst again, because a new
// limiter would be in the same state. c.mu must be held.
func (c *CallerRates) limiter(caller string, now time.Time) *rate.Limiter {
	if l := c.limiters[caller]; l != nil {
		return l
	}
	if len(c.limiters) >= c.maxLimiters {
		for name, l := range c.limiters {
			if l.TokensAt(now) >= float64(c.burst) {
				delete(c.limiters, name)
			}
		}
		// If nearly all callers are active, few limiters were dropped. The limit then grows,
		// because a search through all limiters for each new caller would cost more than their
		// memory is worth.
		c.maxLimiters = max(minLimiters, 2*len(c.limiters))
	}
	l := rate.NewLimiter(rate.Limit(c.perSecond), c.burst)
	c.limiters[caller] = l
	return l
}
