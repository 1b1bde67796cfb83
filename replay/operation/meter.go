package operation

import (
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

const (
	// samplePeriod is how often the progress of running operations is sampled.
	samplePeriod = time.Second
	// minRateWindow is the shortest time over which the rate is measured. Later in a phase, the
	// rate covers the last third of the phase: an operation that takes hours may report its
	// progress only every few minutes, and a short window would contain no report or one.
	minRateWindow = 29 * samplePeriod
	// maxSamples limits the number of samples per operation. When it is reached, every second
	// sample is dropped, so a long phase is covered by fewer samples per minute.
	maxSamples = 512
)

// progressMeter estimates the rate of an operation and its remaining time from samples of its
// progress. It covers one phase at a time.
type progressMeter struct {
	lastProgress replay.PhaseProgress
	samples      []progressSample // of the current phase, oldest first
	// afterPhase is the estimated duration of the phases after the current one; negative means
	// unknown.
	afterPhase time.Duration
	// expectedEnd is when all phases were expected to end, as estimated when the current phase
	// began; zero means unknown.
	expectedEnd time.Time
}

// progressSample says how many units of the phase were done at a time.
type progressSample struct {
	takenAt time.Time
	done    uint64
}

// takeSample samples p and reports whether the progress has changed since the last sample. When
// another phase has begun, or the operation counts the same phase from the start again, the meter
// drops the samples of the previous phase.
func (m *progressMeter) takeSample(p *replay.Progress, now time.Time) (changed bool) {
	current := p.Now()
	changed = current != m.lastProgress

	startedAgain := current.Done < m.lastProgress.Done
	if current.Phase != m.lastProgress.Phase || current.Unit != m.lastProgress.Unit || startedAgain {
		m.samples = m.samples[:0]
		m.expectedEnd = time.Time{}
		// m.afterPhase is still the estimate of the previous phase for all that follows it, so it
		// includes the phase that begins now.
		if m.afterPhase > 0 {
			m.expectedEnd = now.Add(m.afterPhase)
		}
	}
	m.lastProgress = current
	m.afterPhase = p.AfterPhase()

	if len(m.samples) == maxSamples {
		// Keep every second sample, beginning with the first, which marks the start of the phase.
		for i := range maxSamples / 2 {
			m.samples[i] = m.samples[2*i]
		}
		m.samples = m.samples[:maxSamples/2]
	}
	m.samples = append(m.samples, progressSample{now, current.Done})
	return changed
}

// rate returns the recent rate in units per second; 0 means unknown.
func (m *progressMeter) rate() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	// The window covers the last third of the phase, or minRateWindow if that is longer.
	last := m.samples[len(m.samples)-1]
	window := max(minRateWindow, last.takenAt.Sub(m.samples[0].takenAt)/3)
	windowStart := last.takenAt.Add(-window)
	i, _ := slices.BinarySearchFunc(m.samples, windowStart, func(s progressSample, t time.Time) int {
		return s.takenAt.Compare(t)
	})
	first := m.samples[min(i, len(m.samples)-2)] // not last itself: a rate needs two samples

	took := last.takenAt.Sub(first.takenAt).Seconds()
	if took > 0 {
		return float64(last.done-first.done) / took
	}
	return 0
}

// maxRemaining limits the estimated remaining time. Without it, a rate near 0 would overflow a
// duration.
const maxRemaining = 1000 * 24 * time.Hour

// remaining returns the estimated time to the end of all phases; negative means unknown. done and
// total are the units of the current phase.
func (m *progressMeter) remaining(now time.Time, done, total uint64) time.Duration {
	rate := m.rate()
	switch {
	case m.afterPhase < 0:
		return -1
	case !m.expectedEnd.IsZero() && (rate <= 0 || done < total/16):
		// The rate of a phase that has just begun says little. Until a sixteenth of the phase is
		// done, the estimate that was made before the phase counts.
		return max(0, m.expectedEnd.Sub(now))
	case rate <= 0 || total == 0:
		return -1
	}

	inPhase := float64(total-min(done, total)) / rate
	seconds := inPhase + m.afterPhase.Seconds()
	if seconds > maxRemaining.Seconds() {
		return maxRemaining
	}
	return time.Duration(seconds * float64(time.Second))
}
