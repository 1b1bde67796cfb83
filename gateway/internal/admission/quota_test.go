package admission

import (
	"fmt"
	"testing"
	"time"
)

// TestQuotas: each caller has a burst and a rate of its own, and calls under way; what is refused counts for nothing, and the wait
// in the refusal is long enough.
func TestQuotas(t *testing.T) {
	if NewQuotas(QuotaLimits{}) != nil {
		t.Error("nobody is limited, and there are quotas")
	}
	q := NewQuotas(QuotaLimits{Rate: 2, Burst: 3, InFlight: 2})
	now := time.Now()
	take := func(name string, want bool) (retry time.Duration) {
		t.Helper()
		f := q.Take(name, now)
		if (f == nil) != want {
			t.Fatalf("%s is taken: %v, want %v", name, f == nil, want)
		}
		if f != nil {
			retry = f.Retry
		}
		return retry
	}
	take("ann", true)
	take("ann", true)
	take("ann", false) // two are under way
	q.Give("ann")
	take("ann", true) // the last of the burst
	q.Give("ann")
	for range 10 {
		if retry := take("ann", false); retry != 500*time.Millisecond {
			t.Fatalf("to be tried after %v", retry)
		}
	}
	take("bob", true)
	now = now.Add(499 * time.Millisecond)
	take("ann", false)
	now = now.Add(time.Millisecond)
	take("ann", true)
}

// TestQuotasAreBounded: only callers that have taken nothing lately are forgotten for new ones.
func TestQuotasAreBounded(t *testing.T) {
	q := NewQuotas(QuotaLimits{Rate: 1, Burst: 1})
	q.most = 100
	now := time.Now()
	call := func(name string) {
		if f := q.Take(name, now); f != nil {
			t.Fatal(name, f)
		}
	}
	call("busy")
	for i := range 99 {
		call(fmt.Sprint("once", i))
		q.Give(fmt.Sprint("once", i))
	}
	now = now.Add(time.Second)
	call("new")
	if len(q.byName) != 2 || q.byName["busy"] == nil || q.most != maxQuotas {
		t.Errorf("%d callers are remembered, %d may be", len(q.byName), q.most)
	}
	q.Give("busy")
}
