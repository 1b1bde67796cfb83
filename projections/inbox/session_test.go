package inbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// reading is a session whose pages are read at different positions.
type reading struct {
	feed  inbox.Feed
	size  int
	after inbox.PageCursor
	ended bool
	// shown counts the entries that were shown, by the time when they were created.
	shown map[entry]int
	// always are the entries that have been in the list at every position since the first page, in
	// their place.
	always map[entry]bool
	// last is the entry shown last.
	last *inbox.Pin
	// ranked is how many pins a feed by heat ranks, of those that were there when the session
	// began.
	ranked int
	began  events.Micros
}

// entry is a pin in its place, which the time decides, or the item by its heat. Late history may
// change both.
type entry struct {
	owner, id, item string
	created         events.Micros
}

func entryOf(p inbox.Pin) entry { return entry{p.Owner, p.ID, p.Item, p.Created} }

// TestSessionsShowEachPinOnce: whatever is written between the pages of a session, what is in the
// list throughout appears exactly once, what is not at most once and only where it is in the list
// of its page; the order is kept (I9).
func TestSessionsShowEachPinOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := settings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		s := openMem(t, set)
		defer s.Close()
		// A second process with a store of its own serves every other page.
		replica := openMem(t, set)
		defer replica.Close()
		var open []*reading
		folded := 0
		for _, env := range histories.Envelopes(history) {
			fold(t, s, env)
			fold(t, replica, env)
			folded += len(env.Events)
			now := model.New(history[:folded]).At(env.Cursor.LastTime)
			if rapid.Bool().Draw(t, "begin") {
				open = append(open, begin(t, append(now.Users(), "stranger")))
			}
			for i, r := range open {
				store := s
				if i%2 == 1 {
					store = replica
				}
				r.step(t, store, now, history[:folded], rapid.IntRange(0, 2).Draw(t, "turn") == 0)
			}
		}
		envs := histories.Envelopes(history)
		now := model.New(history).At(envs[len(envs)-1].Cursor.LastTime)
		for _, r := range open {
			for !r.ended {
				r.step(t, s, now, history, true)
			}
			r.finish(t)
		}
	})
}

func begin(t *rapid.T, users []string) *reading {
	return &reading{
		feed: inbox.Feed{
			Reader:     rapid.SampledFrom(users).Draw(t, "reader"),
			Order:      rapid.SampledFrom([]inbox.Order{inbox.Newest, inbox.Trending}).Draw(t, "order"),
			IncludeOwn: rapid.Bool().Draw(t, "own"),
			OnePerItem: rapid.IntRange(0, 3).Draw(t, "one per item") == 0,
		},
		size:   rapid.IntRange(1, 3).Draw(t, "page size"),
		ranked: rapid.SampledFrom([]int{2, 5, 1000}).Draw(t, "ranked"),
		shown:  map[entry]int{},
	}
}

// list is the list at a position, as a set of entries.
func (r *reading) list(now *model.Graph) map[entry]bool {
	feed := now.Feed(r.feed.Reader, r.feed.IncludeOwn)
	if r.feed.Order == inbox.Trending {
		feed = slices.DeleteFunc(feed, func(p model.Pin) bool { return p.Created > r.began })
		feed = feed[:min(len(feed), r.ranked)]
	}
	if r.feed.OnePerItem {
		feed = model.OnePerItem(feed)
	}
	set := map[entry]bool{}
	for _, p := range feed {
		set[entry{p.Owner, p.ID, p.Item, p.Created}] = true
	}
	return set
}

// step notes what is in the list at this position, and reads a page at its turn.
func (r *reading) step(t *rapid.T, s *store.Store, now *model.Graph, history []events.Event, turn bool) {
	if r.ended || r.always == nil && !turn {
		return
	}
	if r.always == nil {
		r.began = s.Cursor().LastTime
	}
	list := r.list(now)
	if r.always == nil {
		r.always = list
	}
	for e := range r.always {
		if !list[e] {
			delete(r.always, e)
		}
	}
	if !turn {
		return
	}
	v := view(t, s)
	defer v.Close()
	f := r.feed
	if f.Order == inbox.Trending {
		f = byHeat(f, r.ranked, v.Cursor(), history)
	}
	page, err := inbox.CachedQuery(v).Feed(context.Background(), f, r.after, r.size)
	if err != nil {
		t.Fatalf("page: %v", err)
	}
	whole := now.Feed(r.feed.Reader, r.feed.IncludeOwn)
	for i := range page.Pins {
		p := page.Pins[i]
		if !contains(whole, p) {
			t.Fatalf("%+v is shown to %s and not in the feed", p, r.feed.Reader)
		}
		if r.last != nil && !r.before(*r.last, p) {
			t.Fatalf("%+v comes after %+v", p, *r.last)
		}
		r.shown[entryOf(p)]++
		r.last = &p
	}
	r.after, r.ended = page.Next, page.Next == nil
}

func contains(feed []model.Pin, p inbox.Pin) bool {
	for _, w := range feed {
		if w.Owner == p.Owner && w.ID == p.ID && w.Created == p.Created && w.Board == p.Board {
			return true
		}
	}
	return false
}

// before reports whether one entry stands before another. By heat the scores are those of the
// session.
func (r *reading) before(a, b inbox.Pin) bool {
	if r.feed.Order == inbox.Trending && (a.Score != b.Score || a.Score == 0) {
		return a.Score > b.Score || a.Score <= 0 || b.Score <= 0 // where there is no score, 0 is shown
	}
	if a.Created != b.Created {
		return a.Created > b.Created
	}
	if c := events.CompareIDs(a.Owner, b.Owner); c != 0 {
		return c < 0
	}
	return events.CompareIDs(a.ID, b.ID) < 0
}

func (r *reading) finish(t *rapid.T) {
	for e, n := range r.shown {
		if n > 1 {
			t.Fatalf("%+v was shown %d times in a session %+v", e, n, r.feed)
		}
	}
	for e := range r.always {
		if r.shown[e] != 1 {
			t.Fatalf("%+v was in the list throughout, and shown %d times in a session %+v", e, r.shown[e], r.feed)
		}
	}
}

// TestTrendingSessionExpiresAfterAnHour: a session by heat lives an hour of log time, and then says
// so.
func TestTrendingSessionExpiresAfterAnHour(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	b := newLog(t, s)
	b.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	for _, id := range []string{"p1", "p2", "p3"} {
		b.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: id, Item: id})
		b.add(events.Event{Kind: events.Played, User: "ann", Item: id})
	}
	feed := inbox.Feed{Reader: "ann"}
	read := func(after inbox.PageCursor) (inbox.Page, error) {
		v := view(t, s)
		defer v.Close()
		return inbox.CachedQuery(v).Feed(context.Background(), b.byHeat(feed), after, 1)
	}
	first, err := read(nil)
	if err != nil || first.Next == nil {
		t.Fatalf("%+v: %v", first, err)
	}
	score := first.Pins[0].Score
	b.at(inbox.SessionLifetime - 1_000_000)
	for range 1000 {
		b.add(events.Event{Kind: events.Played, User: "cid", Item: "p1"}) // the hottest by far, and not in this session
	}
	second, err := read(first.Next)
	if err != nil || len(second.Pins) != 1 || second.Pins[0].Score > score {
		t.Fatalf("the second page within the hour: %+v: %v", second, err)
	}
	b.at(inbox.SessionLifetime + 1_000_000)
	b.add(events.Event{Kind: events.Played, User: "cid", Item: "p2"})
	if _, err := read(first.Next); !errors.Is(err, inbox.ErrExpired) {
		t.Fatalf("after an hour: %v", err)
	}
	if page, err := read(nil); err != nil || page.Pins[0].ID != "p1" {
		t.Fatalf("a new session: %+v: %v", page, err)
	}
}

// log builds a log by hand: each event is an envelope.
type log struct {
	t      testing.TB
	s      *store.Store
	cursor events.Cursor
	start  events.Micros
	// told are all events.
	told []events.Event
}

func newLog(t testing.TB, s *store.Store) *log {
	return &log{t: t, s: s, cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start}, start: histories.Start}
}

// at sets the clock to so long after the start of the log.
func (l *log) at(after events.Micros) { l.cursor.LastTime = max(l.cursor.LastTime, l.start+after) }

// add appends events, in one envelope.
func (l *log) add(list ...events.Event) {
	l.t.Helper()
	l.cursor.Seq++
	env := &events.Envelope{}
	for i, ev := range list {
		l.cursor.LastTime++
		ev.Seq, ev.Slot = l.cursor.Seq, uint16(i)
		if !ev.Backfill {
			ev.Time = l.cursor.LastTime
		}
		env.Events = append(env.Events, ev)
		env.Kinds |= events.Kinds(ev.Kind)
	}
	l.told = append(l.told, env.Events...)
	env.Cursor = l.cursor
	fold(l.t, l.s, env)
}
