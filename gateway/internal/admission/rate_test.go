package admission

import (
	"fmt"
	"testing"
	"time"
)

// Each caller has its own burst and rate, a refused call does not count, and the delay in a refusal
// is long enough.
func TestEachCallerHasItsRate(t *testing.T) {
	if NewCallerRates(0, 1) != nil {
		t.Error("expected no limit for a rate of 0")
	}
	rates := NewCallerRates(2, 3)
	now := time.Now()
	accept := func(caller string) {
		t.Helper()
		if f := rates.Take(caller, now); f != nil {
			t.Fatalf("%s: expected the call to be accepted, got %v", caller, f)
		}
	}
	refuse := func(caller string) time.Duration {
		t.Helper()
		f := rates.Take(caller, now)
		if f == nil {
			t.Fatalf("%s: expected the call to be refused", caller)
		}
		if want := "the caller makes more than 2 calls a second (set by --caller-rate); nothing was done"; f.Text != want {
			t.Errorf("expected the error %q, got %q", want, f.Text)
		}
		return f.Retry
	}
	for range 3 { // the burst
		accept("ann")
	}
	for range 10 {
		if retry := refuse("ann"); retry != 500*time.Millisecond {
			t.Fatalf("expected a retry after 500ms, got %v", retry)
		}
	}
	accept("bob")
	now = now.Add(499 * time.Millisecond)
	refuse("ann")
	now = now.Add(time.Millisecond)
	accept("ann")
}

// Only callers who may make a whole burst of calls are dropped for new ones.
func TestOnlyIdleCallersAreForgotten(t *testing.T) {
	rates := NewCallerRates(1, 2)
	rates.maxLimiters = 100
	now := time.Now()
	call := func(caller string) {
		t.Helper()
		if f := rates.Take(caller, now); f != nil {
			t.Fatal(caller, f)
		}
	}
	for i := range 99 {
		call(fmt.Sprint("once", i))
	}
	now = now.Add(time.Second)
	call("busy")
	call("busy")
	call("new")
	if len(rates.limiters) != 2 || rates.limiters["busy"] == nil || rates.maxLimiters != minLimiters {
		t.Errorf("expected busy and new to be remembered, got %d callers of at most %d", len(rates.limiters), rates.maxLimiters)
	}
	if rates.Take("busy", now) == nil {
		t.Error("expected a busy caller to be refused, whoever is forgotten")
	}
}
