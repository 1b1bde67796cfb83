package metrics

import (
	"math"
	"sync"
	"time"
)

// Growth forecasts when the log will be full, from the slowest growth over any period that ends now
// and is growthStep to growthWindow long. So a short burst shortens the forecast only while it
// lasts, and a log that is trimmed regularly is never forecast to be full.
type Growth struct {
	mu sync.Mutex
	// samples cover growthStep each, the oldest first. The first one is about growthWindow old, or
	// as old as there is.
	samples []sample
}

// sample is the largest size of the log during one growthStep.
type sample struct {
	// start is when the step began, and time when the log was last that large.
	start, time time.Time
	bytes       int64
}

const (
	growthStep   = 10 * time.Minute
	growthWindow = 6 * time.Hour
	// minGrowthHistory is how long the log is observed before the first forecast.
	minGrowthHistory = time.Hour
)

// DaysUntilFull records the size of the log, and returns in how many days it reaches the limit. It
// returns nil if that is not known yet, the log does not grow, or limit is 0, which means that the
// log has no limit.
func (g *Growth) DaysUntilFull(now time.Time, bytes, limit int64) *float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.samples) > 1 && now.Sub(g.samples[1].start) >= growthWindow {
		g.samples = g.samples[1:]
	}

	// The forecast is made before the new sample is added, because that is too young to count.
	slowest := math.Inf(1) // in bytes per hour
	for _, s := range g.samples {
		if age := now.Sub(s.time); age >= growthStep {
			slowest = min(slowest, float64(bytes-s.bytes)/age.Hours())
		}
	}

	n := len(g.samples)
	if n == 0 || now.Sub(g.samples[n-1].start) >= growthStep {
		g.samples = append(g.samples, sample{now, now, bytes})
	} else if last := &g.samples[n-1]; bytes >= last.bytes {
		last.time = now
		last.bytes = bytes
	}

	isTooYoung := now.Sub(g.samples[0].start) < minGrowthHistory
	if isTooYoung || slowest <= 0 || limit <= 0 {
		return nil
	}
	days := float64(max(0, limit-bytes)) / slowest / 24
	return &days
}
