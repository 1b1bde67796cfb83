package inbox_test

import (
	"context"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
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

// mustReadByHeat reads a page of n pins of ann's feed by heat from a store, which may be behind the
// log. The feed ranks its newest pins, by the heats of the events so far.
func (l *logBuilder) mustReadByHeat(s *store.Store, ranked int, after inbox.PageCursor, n int) inbox.Page {
	l.t.Helper()
	v := mustView(l.t, s)
	defer v.Close()
	f := rankByHeat(inbox.Feed{Reader: "ann"}, ranked, l.cursor, l.events)
	page, err := inbox.CachedQuery(v).Feed(context.Background(), f, after, n)
	if err != nil {
		l.t.Fatal(err)
	}
	return page
}

// inOrder returns the feed in an order.
func (l *logBuilder) inOrder(order inbox.Order, f inbox.Feed) inbox.Feed {
	if order == inbox.Trending {
		return l.rankByHeat(f)
	}
	return f
}
