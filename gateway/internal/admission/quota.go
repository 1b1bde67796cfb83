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

// Quotas bound the calls of each caller, so that one that calls without end is refused before the others feel it.
// Callers are distinguished by name: all tokens with one name share a quota, and so do all calls if authentication is off.
type Quotas struct {
	limits QuotaLimits

	mu     sync.Mutex
	byName map[string]*quota
	// most is how many callers are remembered before some are forgotten.
	most int
}

// QuotaLimits are what each caller may take.
type QuotaLimits struct {
	// Rate is how many calls a second, over time, and Burst at once; 0 means any number.
	Rate  float64
	Burst int
	// InFlight is how many calls may be under way; 0 means any number.
	InFlight int
}

// quota is what one caller takes. It is guarded by quotas.mu.
type quota struct {
	// rate is nil if it is not limited.
	rate *rate.Limiter
	// underWay counts calls.
	underWay int
}

// maxQuotas is how many callers are remembered in any case: some 2 MB.
const maxQuotas = 10_000

// NewQuotas returns nil if no caller is limited.
func NewQuotas(l QuotaLimits) *Quotas {
	if l.Rate <= 0 && l.InFlight <= 0 {
		return nil
	}
	return &Quotas{limits: l, most: maxQuotas, byName: map[string]*quota{}}
}

// Take counts a call of a caller, or refuses it. The caller of Take must give it back when the call has ended.
func (q *Quotas) Take(name string, now time.Time) *apierror.Failure {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.of(name, now)
	if most := q.limits.InFlight; most > 0 && c.underWay >= most {
		return q.refuse(apierror.RetrySoon, "the caller has %d calls under way, as many as it may", most)
	}
	if c.rate != nil {
		r := c.rate.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now) // a call that is refused counts for nothing
			return q.refuse(wait, "the caller makes more than %v calls a second", q.limits.Rate)
		}
	}
	c.underWay++
	return nil
}

// Give ends a call.
func (q *Quotas) Give(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.byName[name].underWay--
}

// of returns the quota of a caller. If there are too many, a new caller makes it forget all quotas that are full, which changes nothing
// for their callers.
func (q *Quotas) of(name string, now time.Time) *quota {
	if c := q.byName[name]; c != nil {
		return c
	}
	if len(q.byName) >= q.most {
		for name, c := range q.byName {
			if c.underWay == 0 && (c.rate == nil || c.rate.TokensAt(now) >= float64(c.rate.Burst())) {
				delete(q.byName, name)
			}
		}
		// If nearly all are busy, there are that many: to look through them for each new one would cost more than they do.
		q.most = max(maxQuotas, 2*len(q.byName))
	}
	c := &quota{}
	if q.limits.Rate > 0 {
		c.rate = rate.NewLimiter(rate.Limit(q.limits.Rate), q.limits.Burst)
	}
	q.byName[name] = c
	return c
}

func (*Quotas) refuse(retry time.Duration, text string, limit any) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT,
		Text: fmt.Sprintf(text, limit) + "; nothing was done", Retry: max(retry, time.Millisecond),
	}
}
