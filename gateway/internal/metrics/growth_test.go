package metrics

import (
	"testing"
	"time"
)

// TestForecastUsesTheSlowestGrowth checks that the slowest growth over any period gives the
// forecast, so that a burst shortens it only while it lasts.
func TestForecastUsesTheSlowestGrowth(t *testing.T) {
	const limit = 100_000
	const hoursPerDay = 24
	start := time.Unix(1e9, 0)
	// growing returns the sizes of a log that grows by so many bytes per minute.
	growing := func(perMinute int64) func(minute int64) int64 {
		return func(minute int64) int64 { return perMinute * minute }
	}

	for name, c := range map[string]struct {
		// bytesAt returns the size of the log in a minute.
		bytesAt func(minute int64) int64
		until   int64   // the minute of the forecast
		want    float64 // in days; 0 means that there is no forecast
	}{
		// 10 bytes per minute are 600 per hour, and 6000 until minute 600.
		"steady growth":          {growing(10), 600, (limit - 6000) / 600. / hoursPerDay},
		"observed for too short": {growing(1000), 59, 0},
		"just long enough":       {growing(10), 60, (limit - 600) / 600. / hoursPerDay},
		"during a burst": {
			func(minute int64) int64 { return max(0, minute-590) * 5000 },
			600, 0.24375,
		},
		// The log has not grown for 20 minutes.
		"after a burst": {
			func(minute int64) int64 { return min(50_000, max(0, minute-580)*5000) },
			610, 0,
		},
		"a burst that was trimmed": {
			func(minute int64) int64 {
				if minute > 590 && minute < 600 {
					return 90_000
				}
				return 0
			},
			600, 0,
		},
		"trimmed every hour": {
			func(minute int64) int64 { return minute % 60 * 1000 },
			595, 0,
		},
		// The size before the trim is out of the window. The log has grown by 4000 bytes since.
		"trimmed hours ago": {
			func(minute int64) int64 {
				if minute < 200 {
					return 90_000
				}
				return (minute - 200) * 10
			},
			600, (limit - 4000) / 600. / hoursPerDay,
		},
		// 170 bytes per minute are 10,200 per hour. The log is full after 588 minutes and a bit.
		"nearly full": {growing(170), 588, 40. / 10_200 / hoursPerDay},
		// A full log cannot grow.
		"full": {
			func(minute int64) int64 { return min(limit, 170*minute) },
			600, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var g Growth
			for minute := range c.until {
				g.DaysUntilFull(start.Add(time.Duration(minute)*time.Minute), c.bytesAt(minute), limit)
			}

			now := start.Add(time.Duration(c.until) * time.Minute)
			got := g.DaysUntilFull(now, c.bytesAt(c.until), limit)
			switch {
			case got == nil && c.want != 0:
				t.Errorf("got no forecast, want %v days", c.want)
			case got != nil && c.want == 0:
				t.Errorf("got %v days, want no forecast", *got)
			case got != nil && (*got > 1.01*c.want || c.want > 1.01**got):
				t.Errorf("got %v days, want %v within 1 %%", *got, c.want)
			}

			if got := g.DaysUntilFull(now, 1<<40, 0); got != nil {
				t.Errorf("a log without a limit: got %v days, want no forecast", *got)
			}
		})
	}
}
