package inbox_test

import (
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// secondHeat is how items gain heat in histories of some seconds.
var secondHeat = model.HeatSettings{HalfLife: events.Micros(time.Second / time.Microsecond), Play: 1, Repin: 8, Reactions: map[string]uint32{"": 4}}

// modelScores are the scores that the model tells.
type modelScores map[string]int64

// Of returns the score of an item.
func (s modelScores) Of(item string) (int64, bool, error) {
	score, ok := s[item]
	return score, ok, nil
}

// Close does nothing.
func (modelScores) Close() error { return nil }

// byHeat ranks the newest pins of a feed by what the model tells of a history, of which a cursor is
// the end.
func byHeat(f inbox.Feed, ranked int, at events.Cursor, history []events.Event) inbox.Feed {
	f.Order, f.MaxRanked = inbox.Trending, ranked
	f.Heat = inbox.Heat{At: at, Scores: func(seq uint64) inbox.Scores {
		n := 0
		for n < len(history) && history[n].Seq <= seq {
			n++
		}
		return modelScores(model.Heats(history[:n], secondHeat))
	}}
	return f
}

// byHeat ranks all pins of a feed by what was told so far.
func (l *log) byHeat(f inbox.Feed) inbox.Feed { return byHeat(f, 1000, l.cursor, l.told) }

// in puts a feed into an order.
func (l *log) in(order inbox.Order, f inbox.Feed) inbox.Feed {
	if order == inbox.Trending {
		return l.byHeat(f)
	}
	return f
}
