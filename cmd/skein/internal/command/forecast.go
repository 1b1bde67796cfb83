package command

import "time"

const (
	// forecastWindow is the period over which the rate is measured. Earlier progress, such as rows
	// that an earlier run has done, says nothing about the time left.
	forecastWindow = 30 * time.Second
	// minForecastTime is how long progress must have been watched before the first forecast, which
	// would vary too much otherwise.
	minForecastTime = 2 * time.Second
	// sampleInterval is the least time between two samples.
	sampleInterval = time.Second
)

// forecast estimates the time left of a long task from its recent rate.
type forecast struct {
	samples []progressSample // the oldest first
}

// progressSample is how much of a task was done at a time.
type progressSample struct {
	time time.Time
	done int64
}

// timeLeft records how much is done, and returns how long the rest will take. It returns false
// while that is not known.
func (f *forecast) timeLeft(now time.Time, done, total int64) (time.Duration, bool) {
	if n := len(f.samples); n > 0 && done < f.samples[n-1].done {
		f.samples = nil // another task has begun
	}
	if n := len(f.samples); n == 0 || now.Sub(f.samples[n-1].time) >= sampleInterval {
		f.samples = append(f.samples, progressSample{now, done})
	}
	// The oldest sample stays until the next one is old enough to take its place.
	for len(f.samples) > 1 && now.Sub(f.samples[1].time) >= forecastWindow {
		f.samples = f.samples[1:]
	}

	oldest := f.samples[0]
	elapsed := now.Sub(oldest.time)
	if elapsed < minForecastTime || done == oldest.done {
		return 0, false
	}
	// The rest takes as many times the elapsed time as it is times what was done in that time.
	ratio := float64(max(0, total-done)) / float64(done-oldest.done)
	return time.Duration(ratio * float64(elapsed)), true
}
