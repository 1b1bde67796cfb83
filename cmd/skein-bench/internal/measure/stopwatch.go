package measure

import "time"

// Stopwatch measures time, and the processor time that all threads of this process use meanwhile:
// also those of flushes, compactions and garbage collection.
type Stopwatch struct {
	begin       time.Time
	usedAtStart time.Duration
}

// StartStopwatch returns a stopwatch that starts now.
func StartStopwatch() (Stopwatch, error) {
	used, err := CPUTime()
	return Stopwatch{time.Now(), used}, err
}

// Read returns the time since the start, and the processor time that was used in it.
func (w Stopwatch) Read() (elapsed, processor time.Duration) {
	elapsed = time.Since(w.begin)
	used, _ := CPUTime() // it has worked in StartStopwatch
	return elapsed, used - w.usedAtStart
}
