package command

import "time"

const (
	// forecastOver is over how long the rate is taken: what came before, such as rows that an earlier run had done, says
	// nothing of what comes. forecastAfter is how long it takes to say anything.
	forecastOver  = 30 * time.Second
	forecastAfter = 2 * time.Second
)

// forecast reports how much time long work has left, from its rate of late.
type forecast struct {
	seen []progressAt // by time, a second apart
}

type progressAt struct {
	at   time.Time
	done int64
}

// left notes how much is done, and returns how long the rest will take; false: that is not known.
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
