package metrics

import (
	"testing"
	"time"
)

// TestForecastUsesTheSlowestGrowth demands that the slowest growth over any period gives the
// forecast, so that a burst shortens it only while it lasts.
func TestForecastUsesTheSlowestGrowth(t *testing.T) {
	const limit, minute = 100_000, time.Minute
	start := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		// bytes returns the size of the log after so many minutes.
		bytes func(minutes int) int64
		until int     // the minute of the forecast
		days  float64 // 0 means that there is no forecast
	}{
		"steady":                   {func(m int) int64 { return int64(10 * m) }, 600, (100_000 - 6000) / 600. / 24},
		"observed for too short":   {func(m int) int64 { return int64(1000 * m) }, 59, 0},
		"just long enough":         {func(m int) int64 { return int64(10 * m) }, 60, (100_000 - 600) / 600. / 24},
		"a burst":                  {func(m int) int64 { return int64(max(0, m-590) * 5000) }, 600, 0.24375},
		"after a burst":            {func(m int) int64 { return min(50_000, int64(max(0, m-580)*5000)) }, 610, 0},
		"a burst that was trimmed": {func(m int) int64 { return map[bool]int64{m > 590 && m < 600: 90_000}[true] }, 600, 0},
		"trimmed every hour":       {func(m int) int64 { return int64(m % 60 * 1000) }, 595, 0},
		"trimmed hours ago":        {func(m int) int64 { return map[bool]int64{m < 200: 90_000, m >= 200: int64(m-200) * 10}[true] }, 600, 96_000 / 600. / 24},
		"nearly full":              {func(m int) int64 { return int64(170 * m) }, 588, 40. / 10_200 / 24},
		"full":                     {func(m int) int64 { return min(limit, int64(170*m)) }, 600, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var g Growth
			for m := range c.until {
				g.DaysUntilFull(start.Add(time.Duration(m)*minute), c.bytes(m), limit)
			}
			at := start.Add(time.Duration(c.until) * minute)
			got := g.DaysUntilFull(at, c.bytes(c.until), limit)
			if (got == nil) != (c.days == 0) || got != nil && (*got/c.days > 1.01 || c.days / *got > 1.01) {
				t.Errorf("got %v, expected %v days within 1 %%, or nil for 0", got, c.days)
			}
			if got := g.DaysUntilFull(at, 1<<40, 0); got != nil {
				t.Errorf("a log without a limit: got %v days, expected no forecast", *got)
			}
		})
	}
}
