package command

import (
	"testing"
	"time"
)

// The time left follows from the rate of the last half minute. What an earlier run had done does
// not count, nor does a faster beginning.
func TestForecastUsesTheRecentRate(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var f forecast
	check := func(s int, done, total int64, want time.Duration, known bool) {
		t.Helper()
		if got, ok := f.timeLeft(at(s), done, total); got.Round(time.Second) != want || ok != known {
			t.Errorf("after %d s, with %d of %d done: expected %v, known %t, got %v, %t", s, done, total, want, known, got, ok)
		}
	}
	check(0, 5000, 10_000, 0, false) // another run did half of it
	check(1, 5100, 10_000, 0, false)
	check(2, 5200, 10_000, 48*time.Second, true)
	for s := 3; s < 40; s++ {
		f.timeLeft(at(s), 5200+10*int64(s-2), 10_000) // a tenth of the speed
	}
	check(40, 5580, 10_000, 442*time.Second, true)
	check(80, 5580, 10_000, 0, false) // nothing was done for a while
	check(81, 10, 20, 0, false)       // another task
	check(83, 20, 20, 0, true)
	check(84, 30, 20, 0, true) // more than the total
}
