package metrics

import (
	"math"
	"sync"
	"time"
)

// Growth forecasts when the log is full, by the slowest growth over any time that ends now and is growthStep to growthWindow
// long. So a burst counts as what it is for hours, and forecasts nothing when it is over, or trimmed; nor does a log that was
// as large before.
type Growth struct {
	mu sync.Mutex
	// samples are of growthStep each, the oldest first. The first is growthWindow old, or as old as there is.
	samples []sample
}

// sample is the largest that the log was in the time that began then, and when it was that.
type sample struct {
	began, at time.Time
	bytes     int64
}

const (
	growthStep   = 10 * time.Minute
	growthWindow = 6 * time.Hour
	// growthLeast is how long the log is observed before anything is forecast.
	minGrowthHistory = time.Hour
)

// DaysUntilFull returns nil while it is unknown, or the log does not grow or has no bound.
func (g *Growth) DaysUntilFull(now time.Time, bytes, limit int64) *float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.samples) > 1 && now.Sub(g.samples[1].began) >= growthWindow {
		g.samples = g.samples[1:]
	}
	slowest := math.Inf(1) // in bytes an hour
	for _, s := range g.samples {
		if since := now.Sub(s.at); since >= growthStep {
			slowest = min(slowest, float64(bytes-s.bytes)/since.Hours())
		}
	}
	if n := len(g.samples); n == 0 || now.Sub(g.samples[n-1].began) >= growthStep {
		g.samples = append(g.samples, sample{now, now, bytes})
	} else if last := &g.samples[n-1]; bytes >= last.bytes {
		last.at, last.bytes = now, bytes
	}
	if now.Sub(g.samples[0].began) < minGrowthHistory || slowest <= 0 || limit <= 0 {
		return nil
	}
	days := float64(max(0, limit-bytes)) / slowest / 24
	return &days
}
