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

// sessionReader reads the pages of a session at different positions.
type sessionReader struct {
	feed  inbox.Feed
	size  int
	after inbox.PageCursor
	ended bool
	// shown counts how often each entry was shown.
	shown map[entry]int
	// always has the entries that have been in the list at every position since the first page, in
	// their place. It is nil before the first page.
	always map[entry]bool
	// last is the entry that was shown last.
	last *inbox.Pin
	// ranked is how many pins a feed by heat ranks, of those that were there when the session
	// began.
	ranked int
	began  events.Micros
}

// entry is a pin in its place, which its time decides or, by heat, its item. Late history may change
// both.
type entry struct {
	owner, id, item string
	created         events.Micros
}

func entryOf(p inbox.Pin) entry { return entry{p.Owner, p.ID, p.Item, p.Created} }

// TestSessionsShowEachPinOnce checks that, whatever is written between the pages of a session, a pin
// that is in the list throughout appears exactly once. Any other pin may appear at most once, and
// only on a page whose list has it. The order is kept (I9).
func TestSessionsShowEachPinOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := smallSettings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		s := openMem(t, set)
		defer s.Close()

		// A second process has a store of its own. Each page of a session comes from either process.
		replica := openMem(t, set)
		defer replica.Close()
		drawStore := func() *store.Store {
			if rapid.Bool().Draw(t, "replica") {
				return replica
			}
			return s
		}

		var readers []*sessionReader
		folded := 0
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			mustFold(t, replica, env)
			folded += len(env.Events)

			now := model.New(history[:folded]).At(env.Cursor.LastTime)
			if rapid.Bool().Draw(t, "begin") {
				readers = append(readers, drawSession(t, append(now.Users(), "stranger")))
			}
			for _, r := range readers {
				r.step(t, drawStore(), now, history[:folded], rapid.IntRange(0, 2).Draw(t, "turn") == 0)
			}
		}

		// Read all sessions to their end.
		envs := histories.Envelopes(history)
		now := model.New(history).At(envs[len(envs)-1].Cursor.LastTime)
		for _, r := range readers {
			for !r.ended {
				r.step(t, drawStore(), now, history, true)
			}
			r.finish(t)
		}
	})
}

// drawSession draws the feed and the page size of a session.
func drawSession(t *rapid.T, users []string) *sessionReader {
	return &sessionReader{
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

// list returns the entries of the session's list at a position. The first page chooses which pins
// a session by heat ranks: older pins that appear later push none of them out.
func (r *sessionReader) list(now *model.Graph) map[entry]bool {
	feed := now.Feed(r.feed.Reader, r.feed.IncludeOwn)
	if r.feed.Order == inbox.Trending {
		feed = slices.DeleteFunc(feed, func(p model.Pin) bool { return p.Created > r.began })
		if r.always == nil {
			feed = feed[:min(len(feed), r.ranked)]
		}
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

// step records what is in the list at this position and, if it is the session's turn, reads a page.
func (r *sessionReader) step(t *rapid.T, s *store.Store, now *model.Graph, history []events.Event, turn bool) {
	if r.ended || r.always == nil && !turn {
		return
	}

	// The first page fixes the list of the session. Later positions only remove entries from those
	// that were always in it.
	if r.always == nil {
		r.began = s.Cursor().LastTime
		r.always = r.list(now)
	}
	list := r.list(now)
	for e := range r.always {
		if !list[e] {
			delete(r.always, e)
		}
	}

	if !turn {
		return
	}

	v := mustView(t, s)
	defer v.Close()
	f := r.feed
	if f.Order == inbox.Trending {
		f = rankByHeat(f, r.ranked, v.Cursor(), history)
	}
	page, err := inbox.CachedQuery(v).Feed(context.Background(), f, r.after, r.size)
	if errors.Is(err, inbox.ErrExpired) && !slices.ContainsFunc(now.Pins(r.last.Owner), r.isLast) {
		// Late history has given the last pin another item, and so another score.
		r.ended = true
		clear(r.always)
		return
	}
	if err != nil {
		t.Fatalf("page: %v", err)
	}

	// Each entry must be in the feed, and after the last one in the order of the session.
	whole := now.Feed(r.feed.Reader, r.feed.IncludeOwn)
	for i := range page.Pins {
		p := page.Pins[i]
		if !containsPin(whole, p) {
			t.Fatalf("%+v is shown to %s, want only pins of the feed", p, r.feed.Reader)
		}
		if r.last != nil && !r.before(*r.last, p) {
			t.Fatalf("%+v comes after %+v, want the opposite order", p, *r.last)
		}
		r.shown[entryOf(p)]++
		r.last = &p
	}
	r.after = page.Next
	r.ended = page.Next == nil
}

// isLast reports whether a pin is the entry that was shown last, with the same item.
func (r *sessionReader) isLast(p model.Pin) bool {
	return entry{p.Owner, p.ID, p.Item, p.Created} == entryOf(*r.last)
}

// containsPin reports whether a feed of the model has a pin in its place.
func containsPin(feed []model.Pin, p inbox.Pin) bool {
	for _, w := range feed {
		if w.Owner == p.Owner && w.ID == p.ID && w.Created == p.Created && w.Board == p.Board {
			return true
		}
	}
	return false
}

// before reports whether a comes before b in the session. By heat, the scores are those of the
// session.
func (r *sessionReader) before(a, b inbox.Pin) bool {
	if r.feed.Order == inbox.Trending && (a.Score != b.Score || a.Score == 0) {
		// An item without a score has the score 0 in a page, so the order with it is not checked.
		return a.Score > b.Score || a.Score <= 0 || b.Score <= 0
	}
	if a.Created != b.Created {
		return a.Created > b.Created
	}
	if c := events.CompareIDs(a.Owner, b.Owner); c != 0 {
		return c < 0
	}
	return events.CompareIDs(a.ID, b.ID) < 0
}

// finish checks how often the session has shown each entry.
func (r *sessionReader) finish(t *rapid.T) {
	for e, n := range r.shown {
		if n > 1 {
			t.Fatalf("%+v was shown %d times in a session of %+v, want once at most", e, n, r.feed)
		}
	}
	for e := range r.always {
		if r.shown[e] != 1 {
			t.Fatalf("%+v was in the list throughout: shown %d times in a session of %+v, want once", e, r.shown[e], r.feed)
		}
	}
}

// TestTrendingSessionExpiresAfterAnHour checks that a session by heat exists for an hour of log time,
// and then returns an error.
func TestTrendingSessionExpiresAfterAnHour(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	for _, id := range []string{"p1", "p2", "p3"} {
		l.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: id, Item: id})
		l.add(events.Event{Kind: events.Played, User: "ann", Item: id})
	}

	feed := inbox.Feed{Reader: "ann"}
	read := func(after inbox.PageCursor) (inbox.Page, error) {
		v := mustView(t, s)
		defer v.Close()
		return inbox.CachedQuery(v).Feed(context.Background(), l.rankByHeat(feed), after, 1)
	}

	// Within the hour, the session keeps its scores, although p1 becomes the hottest item by far.
	first, err := read(nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.Next == nil {
		t.Fatalf("got the first page %+v, want one with a next page", first)
	}
	score := first.Pins[0].Score
	l.advanceTo(inbox.SessionLifetime - 1_000_000)
	for range 1000 {
		l.add(events.Event{Kind: events.Played, User: "cid", Item: "p1"})
	}
	second, err := read(first.Next)
	if err != nil {
		t.Fatalf("second page within the hour: %v", err)
	}
	if len(second.Pins) != 1 || second.Pins[0].Score > score {
		t.Fatalf("second page within the hour: got %+v, want one pin with a score of at most %d", second, score)
	}

	// After the hour, the session has expired, and a new one has the new order.
	l.advanceTo(inbox.SessionLifetime + 1_000_000)
	l.add(events.Event{Kind: events.Played, User: "cid", Item: "p2"})
	if _, err := read(first.Next); !errors.Is(err, inbox.ErrExpired) {
		t.Fatalf("second page after an hour: got error %v, want %v", err, inbox.ErrExpired)
	}
	page, err := read(nil)
	if err != nil {
		t.Fatal(err)
	}
	if page.Pins[0].ID != "p1" {
		t.Fatalf("new session: got the first pin %s, want p1", page.Pins[0].ID)
	}
}

// logBuilder builds a log by hand, and folds it. Each call of add is one envelope.
type logBuilder struct {
	t      testing.TB
	s      *store.Store
	cursor events.Cursor
	start  events.Micros
	// events are all events so far.
	events []events.Event
}

func newLogBuilder(t testing.TB, s *store.Store) *logBuilder {
	return &logBuilder{
		t: t, s: s, start: histories.Start,
		cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start},
	}
}

// advanceTo sets the log time to a time after the start of the log, unless it is later already.
func (l *logBuilder) advanceTo(after events.Micros) {
	l.cursor.LastTime = max(l.cursor.LastTime, l.start+after)
}

// add appends events, in one envelope.
func (l *logBuilder) add(list ...events.Event) {
	l.t.Helper()
	l.cursor.Seq++
	env := &events.Envelope{}
	for i, ev := range list {
		l.cursor.LastTime++
		ev.Seq = l.cursor.Seq
		ev.Slot = uint16(i)
		if !ev.Backfill {
			ev.Time = l.cursor.LastTime
		}
		env.Events = append(env.Events, ev)
		env.Kinds |= events.Kinds(ev.Kind)
	}

	l.events = append(l.events, env.Events...)
	env.Cursor = l.cursor
	mustFold(l.t, l.s, env)
}
