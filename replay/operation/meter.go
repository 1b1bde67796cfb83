package operation

import (
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

const (
	// samplePeriod is the interval at which the progress of running work is sampled.
	samplePeriod = time.Second
	// leastLately is the least time over which a rate is taken; it is taken over the last third of the stage if that is longer. Work
	// that takes hours counts in pieces that take minutes.
	leastLately = 29 * samplePeriod
	// maxSamples bounds the samples that are kept.
	maxSamples = 512
)

// meter estimates the rate of work and its remaining time, from samples of its progress.
type meter struct {
	unit    string
	total   uint64
	samples []sample // oldest first
	// ahead is how long the stages after this one take; negative means unknown. Before this one began all were expected to end at the
	// time end; zero means that was unknown.
	ahead time.Duration
	end   time.Time
}

type sample struct {
	at   time.Time
	done uint64
}

// look takes a sample, and reports whether the progress has changed. When the work begins another stage and counts anew, so does the
// meter.
func (m *meter) look(p *replay.Progress, now time.Time) (changed bool) {
	unit, done, total := p.Now()
	last := sample{}
	if n := len(m.samples); n > 0 {
		last = m.samples[n-1]
	}
	changed = unit != m.unit || done != last.done || total != m.total
	if unit != m.unit || done < last.done {
		m.samples, m.end = m.samples[:0], time.Time{}
		if m.ahead > 0 {
			m.end = now.Add(m.ahead)
		}
	}
	m.unit, m.total, m.ahead = unit, total, p.Left()
	if len(m.samples) == maxSamples { // every second one will do, and the first
		for i := range maxSamples / 2 {
			m.samples[i] = m.samples[2*i]
		}
		m.samples = m.samples[:maxSamples/2]
	}
	m.samples = append(m.samples, sample{now, done})
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

// remaining is the time to the end of all stages; negative while it is unknown. At the start of a stage, of which the rate says little,
// it is what was expected before.
func (m *meter) remaining(now time.Time, done, total uint64) time.Duration {
	rate := m.rate()
	switch {
	case m.ahead < 0:
		return -1
	case !m.end.IsZero() && (rate <= 0 || done < total/16):
		return max(0, m.end.Sub(now))
	case rate <= 0 || total == 0:
		return -1
	}
	seconds := float64(total-min(done, total))/rate + m.ahead.Seconds()
	if seconds > maxRemaining.Seconds() {
		return maxRemaining
	}
	return time.Duration(seconds * float64(time.Second))
}
