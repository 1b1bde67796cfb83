package inbox_test

import (
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// secondHeat says how items gain heat in histories of some seconds.
var secondHeat = model.HeatSettings{
	HalfLife:  events.Micros(time.Second / time.Microsecond),
	Play:      1,
	Repin:     8,
	Reactions: map[string]uint32{"": 4},
}

// modelScores has scores of the model, by item.
type modelScores map[string]int64

// Of returns the score of an item.
func (s modelScores) Of(item string) (int64, bool, error) {
	score, ok := s[item]
	return score, ok, nil
}

// Close does nothing.
func (modelScores) Close() error { return nil }

// rankByHeat returns the feed with its newest pins ranked by the heats of the model after a history,
// of which a cursor is the end.
func rankByHeat(f inbox.Feed, ranked int, at events.Cursor, history []events.Event) inbox.Feed {
	f.Order = inbox.Trending
	f.MaxRanked = ranked
	f.Heat = inbox.Heat{At: at, Scores: func(seq uint64) inbox.Scores {
		n := 0
		for n < len(history) && history[n].Seq <= seq {
			n++
		}
		return modelScores(model.Heats(history[:n], secondHeat))
	}}
	return f
}

// rankByHeat returns the feed with all its pins ranked by the heats of the events so far.
func (l *logBuilder) rankByHeat(f inbox.Feed) inbox.Feed {
	return rankByHeat(f, 1000, l.cursor, l.events)
}

// inOrder returns the feed in an order.
func (l *logBuilder) inOrder(order inbox.Order, f inbox.Feed) inbox.Feed {
	if order == inbox.Trending {
		return l.rankByHeat(f)
	}
	return f
}
