package gateway

import (
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// quotas bound what each caller takes of the service, so that one who asks without end is refused before the others feel it.
// Callers are told apart by name: all tokens with one name share, as do all calls where nobody is asked for a token.
type quotas struct {
	limits Limits

	mu     sync.Mutex
	byName map[string]*quota
	// most is how many callers are remembered before some are forgotten.
	most int
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

// newQuotas returns nil if no caller is limited.
func newQuotas(l Limits) *quotas {
	if l.CallerRate <= 0 && l.CallerInFlight <= 0 {
		return nil
	}
	return &quotas{limits: l, most: maxQuotas, byName: map[string]*quota{}}
}

// take counts a call of a caller, or refuses it. What was taken is to be given back when the call has ended.
func (q *quotas) take(name string, now time.Time) *apierror.Failure {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.of(name, now)
	if most := q.limits.CallerInFlight; most > 0 && c.underWay >= most {
		return q.refuse(apierror.RetrySoon, "the caller has %d calls under way, as many as it may", most)
	}
	if c.rate != nil {
		r := c.rate.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now) // a call that is refused counts for nothing
			return q.refuse(wait, "the caller makes more than %v calls a second", q.limits.CallerRate)
		}
	}
	c.underWay++
	return nil
}

// give ends a call.
func (q *quotas) give(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.byName[name].underWay--
}

// of returns the quota of a caller. Who is new makes room if there is none: all those are forgotten who have taken nothing lately, to
// whom it makes no difference.
func (q *quotas) of(name string, now time.Time) *quota {
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
	if q.limits.CallerRate > 0 {
		c.rate = rate.NewLimiter(rate.Limit(q.limits.CallerRate), q.limits.CallerBurst)
	}
	q.byName[name] = c
	return c
}

func (*quotas) refuse(retry time.Duration, text string, limit any) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT,
		Text: fmt.Sprintf(text, limit) + "; nothing was done", Retry: max(retry, time.Millisecond),
	}
}

// enter counts a call against the budget of its kind and its caller's quota, or refuses it, as it does a part of all when there
// are too many. What was entered must be left.
func (m *method) enter(a admission, now time.Time) error {
	if f := m.budget.take("", 1); f != nil {
		return f
	}
	if f := m.quota(a, now); f != nil {
		m.budget.give("", 1)
		return f
	}
	a.conn.begin(now)
	return nil
}

// leave ends a call.
func (m *method) leave(a admission) {
	a.conn.end()
	m.budget.give("", 1)
	if q := m.s.quotas; q != nil && !m.right.open {
		q.give(a.caller.Name)
	}
}

// quota refuses what is too much now, or too much of one caller.
func (m *method) quota(a admission, now time.Time) *apierror.Failure {
	if m.right.open {
		return nil
	}
	if !m.right.roles.Any(access.Admin) {
		// Who looks what is wrong is let in.
		if f := m.s.shed.admit(); f != nil {
			return f
		}
	}
	if q := m.s.quotas; q != nil {
		return q.take(a.caller.Name, now)
	}
	return nil
}
