package command

import "time"

const (
	// forecastOver is the period over which the rate is measured. Earlier progress, such as rows that an earlier run has done, says
	// nothing about the time left. forecastAfter is the least time before the first forecast.
	forecastOver  = 30 * time.Second
	forecastAfter = 2 * time.Second
)

// forecast estimates the time left of a long task, from its recent rate.
type forecast struct {
	seen []progressAt // by time, a second apart
}

type progressAt struct {
	at   time.Time
	done int64
}

// left notes how much is done, and returns how long the rest will take. It returns false while that is unknown.
func (f *forecast) left(now time.Time, done, total int64) (time.Duration, bool) {
	n := len(f.seen)
	if n > 0 && done < f.seen[n-1].done {
		f.seen, n = nil, 0 // other work has begun
	}
	if n == 0 || now.Sub(f.seen[n-1].at) >= time.Second {
		f.seen = append(f.seen, progressAt{now, done})
	}
	for len(f.seen) > 1 && now.Sub(f.seen[1].at) >= forecastOver {
		f.seen = f.seen[1:]
	}
	since := f.seen[0]
	spent := now.Sub(since.at)
	if spent < forecastAfter || done == since.done {
		return 0, false
	}
	rest := float64(max(0, total-done)) / float64(done-since.done)
	return time.Duration(rest * float64(spent)), true
}
