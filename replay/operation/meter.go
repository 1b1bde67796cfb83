package operation

import (
	"time"

	"github.com/skein-feed/skein/replay"
)

const (
	// samplePeriod is how often the progress of running work is looked at.
	samplePeriod = time.Second
	// sampleCount bounds what "lately" means: a rate is over at most so many periods.
	sampleCount = 30
)

// meter reports how fast work goes.
type meter struct {
	unit    string
	total   uint64
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	done uint64
}

// look notes how far the work is, and reports whether that has changed. Where the work begins to count anew, so does the
// meter.
func (m *meter) look(p *replay.Progress, now time.Time) (changed bool) {
	unit, done, total := p.Now()
	last := sample{}
	if n := len(m.samples); n > 0 {
		last = m.samples[n-1]
	}
	changed = unit != m.unit || done != last.done || total != m.total
	if unit != m.unit || done < last.done {
		m.samples = m.samples[:0]
	}
	m.unit, m.total = unit, total
	if len(m.samples) == sampleCount {
		m.samples = append(m.samples[:0], m.samples[1:]...)
	}
	m.samples = append(m.samples, sample{now, done})
	return changed
}

// rate is in units a second.
func (m *meter) rate() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	if took := last.at.Sub(first.at).Seconds(); took > 0 {
		return float64(last.done-first.done) / took
	}
	return 0
}

// maxRemaining is a time that is not worth telling apart from a longer one.
const maxRemaining = 1000 * 24 * time.Hour

// remaining is negative while it is unknown.
func remaining(rate float64, done, total uint64) time.Duration {
	if rate <= 0 || total == 0 || done > total {
		return -1
	}
	seconds := float64(total-done) / rate
	if seconds > maxRemaining.Seconds() {
		return maxRemaining
	}
	return time.Duration(seconds * float64(time.Second))
}
