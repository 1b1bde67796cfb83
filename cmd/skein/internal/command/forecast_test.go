package command

import (
	"testing"
	"time"
)

// The time left follows from the rate of the last half minute. What an earlier run had done does
// not count, nor does a faster beginning.
func TestForecastUsesTheRecentRate(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var f forecast
	timeLeftAfter := func(second int, done, total int64) (time.Duration, bool) {
		return f.timeLeft(start.Add(time.Duration(second)*time.Second), done, total)
	}
	check := func(what string, second int, done, total int64, want time.Duration, wantKnown bool) {
		t.Helper()
		got, known := timeLeftAfter(second, done, total)
		if got.Round(time.Second) != want || known != wantKnown {
			t.Errorf("%s, after %d s, with %d of %d done: got %v, known %t, want %v, known %t",
				what, second, done, total, got, known, want, wantKnown)
		}
	}

	check("an earlier run did half of the task", 0, 5000, 10_000, 0, false)
	check("one second is too short", 1, 5100, 10_000, 0, false)
	check("100 per second", 2, 5200, 10_000, 48*time.Second, true)

	// Continue at a tenth of the speed, until the window has only this speed.
	for second := 3; second < 40; second++ {
		timeLeftAfter(second, 5200+10*int64(second-2), 10_000)
	}
	check("10 per second", 40, 5580, 10_000, 442*time.Second, true)
	check("nothing was done for a while", 80, 5580, 10_000, 0, false)

	check("another task begins", 81, 10, 20, 0, false)
	check("all is done", 83, 20, 20, 0, true)
	check("more than the total is done", 84, 30, 20, 0, true)
}
