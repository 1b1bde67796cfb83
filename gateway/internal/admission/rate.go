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

// CallerRates limits how many calls a second each caller may make, so that one that calls without end is refused before the others
// feel it. Callers are distinguished by name: all tokens with one name share a rate, and so do all calls if there is no access control.
type CallerRates struct {
	perSecond float64
	burst     int

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
	// maxLimiters is how many callers are remembered before some are forgotten.
	maxLimiters int
}

// minRemembered is how many callers are remembered in any case: some 2 MB.
const minLimiters = 10_000

// NewCallerRates returns nil if perSecond is 0, which means any number. A caller who was silent may make a burst of calls at once.
func NewCallerRates(perSecond float64, burst int) *CallerRates {
	if perSecond <= 0 {
		return nil
	}
	return &CallerRates{perSecond: perSecond, burst: burst, limiters: map[string]*rate.Limiter{}, maxLimiters: minLimiters}
}

// Take counts a call of a caller, or refuses it. A call that is refused does not count. Nil CallerRates refuse nothing.
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

// limiter returns the limiter of a caller. If there are too many, it first forgets all callers who may make a whole burst of calls:
// they would get the same limiter again.
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
		// If nearly all callers are active, there are that many of them: to search them for each new one would cost more memory
		// accesses than the memory of those who remain is worth.
		c.maxLimiters = max(minLimiters, 2*len(c.limiters))
	}
	l := rate.NewLimiter(rate.Limit(c.perSecond), c.burst)
	c.limiters[caller] = l
	return l
}
