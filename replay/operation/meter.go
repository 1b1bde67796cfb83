package operation

import (
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

const (
	// samplePeriod is the interval at which the progress of running operations is sampled.
	samplePeriod = time.Second
	// leastLately is the least time over which a rate is taken; it is taken over the last third of the phase if that is longer. Operations
	// that take hours count in pieces that take minutes.
	leastLately = 29 * samplePeriod
	// maxSamples bounds the samples that are kept.
	maxSamples = 512
)

// meter estimates the rate of an operation and its remaining time, from samples of its progress.
type meter struct {
	last    replay.PhaseProgress
	samples []sample // oldest first
	// afterPhase is how long the phases after this one take; negative means unknown. Before this one began all were expected to end at the
	// time end; zero means that was unknown.
	afterPhase time.Duration
	end        time.Time
}

type sample struct {
	at   time.Time
	done uint64
}

// takeSample takes a sample, and reports whether the progress has changed. When the operation begins another phase and counts anew, so does
// the meter.
func (m *meter) takeSample(p *replay.Progress, now time.Time) (changed bool) {
	at := p.Now()
	changed = at != m.last
	if at.Phase != m.last.Phase || at.Unit != m.last.Unit || at.Done < m.last.Done {
		m.samples, m.end = m.samples[:0], time.Time{}
		if m.afterPhase > 0 {
			m.end = now.Add(m.afterPhase)
		}
	}
	m.last, m.afterPhase = at, p.AfterPhase()
	if len(m.samples) == maxSamples { // every second one will do, and the first
		for i := range maxSamples / 2 {
			m.samples[i] = m.samples[2*i]
		}
		m.samples = m.samples[:maxSamples/2]
	}
	m.samples = append(m.samples, sample{now, at.Done})
	return changed
}

// rate is in units a second.
func (m *meter) rate() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	last := m.samples[len(m.samples)-1]
	lately := max(leastLately, last.at.Sub(m.samples[0].at)/3)
	i, _ := slices.BinarySearchFunc(m.samples, last.at.Add(-lately), func(s sample, at time.Time) int { return s.at.Compare(at) })
	first := m.samples[min(i, len(m.samples)-2)]
	if took := last.at.Sub(first.at).Seconds(); took > 0 {
		return float64(last.done-first.done) / took
	}
	return 0
}

// maxRemaining bounds an estimate, so that a rate near 0 does not overflow a duration.
const maxRemaining = 1000 * 24 * time.Hour

// remaining is the time to the end of all phases; negative while it is unknown. At the start of a phase, of which the rate says little,
// it is what was expected before.
func (m *meter) remaining(now time.Time, done, total uint64) time.Duration {
	rate := m.rate()
	switch {
	case m.afterPhase < 0:
		return -1
	case !m.end.IsZero() && (rate <= 0 || done < total/16):
		return max(0, m.end.Sub(now))
	case rate <= 0 || total == 0:
		return -1
	}
	seconds := float64(total-min(done, total))/rate + m.afterPhase.Seconds()
	if seconds > maxRemaining.Seconds() {
		return maxRemaining
	}
	return time.Duration(seconds * float64(time.Second))
}
