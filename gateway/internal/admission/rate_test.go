package admission

import (
	"fmt"
	"testing"
	"time"
)

func TestRateOfZeroLimitsNothing(t *testing.T) {
	if got := NewCallerRates(0, 1); got != nil {
		t.Errorf("NewCallerRates(0, 1): got %v, want nil", got)
	}
}

// mustAcceptCall stops the test if a call of a caller is refused.
func mustAcceptCall(t *testing.T, rates *CallerRates, caller string, now time.Time) {
	t.Helper()
	if f := rates.Take(caller, now); f != nil {
		t.Fatalf("call of %s: got the refusal %v, want none", caller, f)
	}
}

// mustRefuseCall stops the test if a call of a caller is accepted. It returns the delay after which
// the refusal asks the caller to call again.
func mustRefuseCall(t *testing.T, rates *CallerRates, caller string, now time.Time) (retry time.Duration) {
	t.Helper()
	f := rates.Take(caller, now)
	if f == nil {
		t.Fatalf("call of %s: got no refusal, want one", caller)
	}
	const want = "the caller makes more than 2 calls a second (set by --caller-rate); nothing was done"
	if f.Text != want {
		t.Errorf("text of the refusal: got %q, want %q", f.Text, want)
	}
	return f.Retry
}

// TestEachCallerHasItsRate checks that each caller has a burst and rate of its own, that a refused
// call does not count, and that the delay in a refusal is long enough.
func TestEachCallerHasItsRate(t *testing.T) {
	const perSecond, burst = 2, 3
	rates := NewCallerRates(perSecond, burst)
	now := time.Now()

	for range burst {
		mustAcceptCall(t, rates, "ann", now)
	}
	// If refused calls counted, the delay would grow from call to call.
	for range 10 {
		if got := mustRefuseCall(t, rates, "ann", now); got != 500*time.Millisecond {
			t.Fatalf("delay in the refusal: got %v, want 500ms", got)
		}
	}
	mustAcceptCall(t, rates, "bob", now)

	// The next call of ann is accepted after exactly that delay.
	now = now.Add(499 * time.Millisecond)
	mustRefuseCall(t, rates, "ann", now)
	now = now.Add(time.Millisecond)
	mustAcceptCall(t, rates, "ann", now)
}

// TestOnlyIdleCallersAreForgotten checks that only callers who may make a whole burst of calls are
// dropped for new ones.
func TestOnlyIdleCallersAreForgotten(t *testing.T) {
	rates := NewCallerRates(1, 2)
	rates.maxLimiters = 100
	now := time.Now()

	// After a second, these callers may make a whole burst again.
	for i := range rates.maxLimiters - 1 {
		mustAcceptCall(t, rates, fmt.Sprint("idle", i), now)
	}
	now = now.Add(time.Second)

	// The caller "busy" fills the map with a burst. The caller "new" then makes rates drop the idle
	// ones.
	mustAcceptCall(t, rates, "busy", now)
	mustAcceptCall(t, rates, "busy", now)
	mustAcceptCall(t, rates, "new", now)
	if len(rates.limiters) != 2 || rates.limiters["busy"] == nil {
		t.Errorf("callers that are remembered: got %d (busy among them: %t), want busy and new", len(rates.limiters), rates.limiters["busy"] != nil)
	}
	if rates.maxLimiters != minLimiters {
		t.Errorf("maxLimiters after callers were dropped: got %d, want %d", rates.maxLimiters, minLimiters)
	}
	if rates.Take("busy", now) == nil {
		t.Error("call of busy after its burst: got no refusal, want one")
	}
}
