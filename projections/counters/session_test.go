package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// sessionReader reads the pages of a session at different positions.
type sessionReader struct {
	scope Scope
	size  int
	after PageCursor
	ended bool
	// began is the log time of the first page, and heats has the scores at its position.
	began events.Micros
	heats map[string]int64
	// shown counts how often each item was shown.
	shown map[string]int
	// always has the items that have been in the list at every position since the first page. It is
	// nil before the first page.
	always map[string]bool
	// last is the item that was shown last.
	last *model.TrendingItem
}

// TestSessionsShowEachItemOnce checks that, whatever is written between the pages of a session, an
// item that is in the list throughout appears exactly once. Any other item may appear at most once,
// and only on a page whose list has it. The order is that of the session's scores (I9).
func TestSessionsShowEachItemOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := drawSizes(t)
		s := openStore(t, set, store.Bounds{})
		defer s.Close()

		// A second process has a store of its own. Each page of a session comes from either process.
		replica := openStore(t, set, store.Bounds{BatchBytes: 1})
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

			now := model.New(history[:folded])
			if rapid.IntRange(0, 2).Draw(t, "begin") == 0 {
				readers = append(readers, drawSession(t, now))
			}
			for _, r := range readers {
				r.step(t, drawStore(), now, set, history[:folded], rapid.IntRange(0, 2).Draw(t, "turn") == 0)
			}
		}

		// Read all sessions to their end.
		now := model.New(history)
		for _, r := range readers {
			for !r.ended {
				r.step(t, drawStore(), now, set, history, true)
			}
			r.finish(t, history)
		}
	})
}

// drawSession draws the list and the page size of a session. Boards with many pins are drawn more
// often.
func drawSession(t *rapid.T, now *model.Graph) *sessionReader {
	r := &sessionReader{size: rapid.IntRange(1, 3).Draw(t, "page size"), shown: map[string]int{}}
	boards := now.BoardsMentioned()
	if len(boards) == 0 || rapid.IntRange(0, 3).Draw(t, "everybody's") == 0 {
		return r
	}

	b := rapid.SampledFrom(boards).Draw(t, "board")
	for range 2 {
		other := rapid.SampledFrom(boards).Draw(t, "board")
		if len(now.BoardPins(other.Owner, other.Board)) > len(now.BoardPins(b.Owner, b.Board)) {
			b = other
		}
	}

	r.scope.Owner = b.Owner
	if rapid.Bool().Draw(t, "one board") {
		r.scope.Board = &b.Board
	}
	return r
}

// step records what is in the list at this position and, if it is the session's turn, reads a page.
func (r *sessionReader) step(t *rapid.T, s *store.Store, now *model.Graph, set sizes, history []events.Event, turn bool) {
	t.Helper()
	if r.ended || r.always == nil && !turn {
		return
	}

	// The first page fixes the scores of the session. Later positions only remove items from those
	// that were always in the list.
	first := r.always == nil
	if first {
		r.heats = model.Heats(history, heatSettings(set))
	}
	list := now.Top(model.Scope(r.scope), r.heats)
	if first {
		r.always = map[string]bool{}
		for _, h := range list {
			r.always[h.Item] = true
		}
	}
	for item := range r.always {
		if !slices.ContainsFunc(list, func(h model.TrendingItem) bool { return h.Item == item }) {
			delete(r.always, item)
		}
	}

	if !turn {
		return
	}

	v := mustView(t, s)
	defer v.Close()
	if first {
		r.began = v.Cursor().LastTime
	}

	// A session that is too old has expired. Any other must return a page.
	page, next, err := set.query(v).Trending(context.Background(), r.scope, r.after, r.size)
	age := v.Cursor().LastTime - r.began
	wantExpired := !first && age > SessionLifetime
	if wantExpired && !errors.Is(err, ErrExpired) {
		t.Fatalf("a page %d µs after the first: got error %v, want %v", age, err, ErrExpired)
	}
	if !wantExpired && err != nil {
		t.Fatalf("a page %d µs after the first: got error %v, want none", age, err)
	}
	if err != nil {
		r.ended = true
		r.always = map[string]bool{}
		return
	}

	// The page must be what comes after the last item in the order of the session's scores.
	if r.last != nil {
		list = slices.DeleteFunc(list, func(h model.TrendingItem) bool {
			return h.Score > r.last.Score || h.Score == r.last.Score && events.CompareIDs(h.Item, r.last.Item) <= 0
		})
	}
	want := toTrendingItems(list[:min(r.size, len(list))])
	if diff := cmp.Diff(want, page); diff != "" {
		t.Fatalf("page of %+v: -want +got\n%s\nafter\n%s", r.scope, diff, formatHistory(history))
	}
	if hasNext, wantNext := next != nil, len(list) > r.size; hasNext != wantNext {
		t.Fatalf("page of %+v has a next page: got %v, want %v\nafter\n%s", r.scope, hasNext, wantNext, formatHistory(history))
	}

	for _, h := range page {
		r.shown[h.Item]++
		last := model.TrendingItem(h)
		r.last = &last
	}
	r.after = next
	r.ended = next == nil
}

// finish checks how often the session has shown each item.
func (r *sessionReader) finish(t *rapid.T, history []events.Event) {
	t.Helper()
	for item, n := range r.shown {
		if n > 1 {
			t.Fatalf("%s was shown %d times in a session of %+v, want once at most\nafter\n%s", item, n, r.scope, formatHistory(history))
		}
	}
	for item := range r.always {
		if r.shown[item] != 1 {
			t.Fatalf("%s was in the list throughout: shown %d times in a session of %+v, want once\nafter\n%s",
				item, r.shown[item], r.scope, formatHistory(history))
		}
	}
}

// TestItemStaysInSessionWhenItsPinIsReplaced keeps an item in a list while one envelope deletes the
// pin that shows it and creates others, after its score has changed since the session began. The
// session must show the item once, with the score that it had when the session began.
func TestItemStaysInSessionWhenItsPinIsReplaced(t *testing.T) {
	for _, set := range sizesForEveryListForm() {
		l := newItemLog(t, set)
		for _, item := range []string{"a", "b", "c"} {
			l.add(newPinCreated("ann", "p"+item, "", item), newItemScored(item, 10))
		}

		page, next := l.page(Scope{Owner: "ann"}, nil, 1)
		if len(page) != 1 || page[0].Item != "a" {
			t.Fatalf("%+v: got the first page %v, want a only", set, page)
		}

		// Between the pages, c gets another score, and other pins replace the one that shows it.
		l.add(newItemScored("c", 99))
		l.add(
			events.Event{Kind: events.PinDeleted, User: "ann", Pin: "pc"},
			newPinCreated("ann", "again", "art", "c"), newPinCreated("ann", "more", "tea", "c"),
		)

		page, _ = l.page(Scope{Owner: "ann"}, next, 5)
		if want := []TrendingItem{{"b", 10}, {"c", 10}}; !slices.Equal(page, want) {
			t.Errorf("%+v: got the second page %v, want %v", set, page, want)
		}
		page, _ = l.page(Scope{Owner: "ann"}, nil, 5)
		if want := []TrendingItem{{"c", 99}, {"a", 10}, {"b", 10}}; !slices.Equal(page, want) {
			t.Errorf("%+v: got %v in a new session, want %v", set, page, want)
		}
		l.close()
	}
}

// sizesForEveryListForm returns sizes with which lists are computed, have their items by name, or
// have their items by score.
func sizesForEveryListForm() (all []sizes) {
	for _, named := range []int{0, 2, 64} {
		for _, computed := range []int64{0, 256} {
			set := defaultSizes()
			set.maxPinsByName = named
			set.maxComputedPins = computed
			set.maxRowsPerPin = 0
			all = append(all, set)
		}
	}
	return all
}

// TestSessionShowsItemOnceHoweverItIsListed lists an item by name or by score throughout a session,
// or changes from one to the other. In every case the session must show the item once, at the score
// that it had when the session began.
func TestSessionShowsItemOnceHoweverItIsListed(t *testing.T) {
	for _, set := range sizesForEveryListForm() {
		for _, c := range []struct{ before, after int }{{1, 1}, {1, 3}, {3, 1}, {3, 3}, {4, 3}, {0, 3}} {
			for _, score := range []int64{-99, 99} {
				t.Run(fmt.Sprintf("%+v, from %d pins to %d, score %d", set, c.before, c.after, score), func(t *testing.T) {
					// The session begins with a, which is the hottest.
					l := newItemLog(t, set)
					l.add(
						newItemScored("a", 10), newPinCreated("ann", "pa", "", "a"),
						newItemScored("b", 5),
						newItemScored("c", 5), newPinCreated("ann", "pc", "", "c"),
					)
					// showOnBoards makes n pins show b, and deletes the others of four.
					showOnBoards := func(n int) {
						for i := range 4 {
							pin := events.Event{Kind: events.PinDeleted, User: "ann", Pin: fmt.Sprint("b", i)}
							if i < n {
								pin = newPinCreated("ann", pin.Pin, fmt.Sprint("board", i), "b")
							}
							l.add(pin)
						}
					}
					showOnBoards(c.before)
					page, next := l.page(Scope{Owner: "ann"}, nil, 1)
					if !slices.Equal(page, []TrendingItem{{"a", 10}}) {
						t.Errorf("got the first page %v, want a", page)
					}

					// Between the pages, b gets other scores, and another number of pins show it.
					l.add(newItemScored("b", score))
					showOnBoards(c.after)
					l.add(newItemScored("b", score+1))

					page, next = l.page(Scope{Owner: "ann"}, next, 1)
					if !slices.Equal(page, []TrendingItem{{"b", 5}}) {
						t.Errorf("got the second page %v, want b with its old score 5", page)
					}

					page, next = l.page(Scope{Owner: "ann"}, next, 1)
					if !slices.Equal(page, []TrendingItem{{"c", 5}}) {
						t.Errorf("got the third page %v, want c", page)
					}
					if next != nil {
						t.Errorf("got the page cursor %x after the last page, want none", next)
					}
					l.close()
				})
			}
		}
	}
}

// TestSessionExpiresAfterAnHour checks that a session exists for an hour of log time, and then
// returns an error. Meanwhile, versions that no session can read are dropped, and those that the
// session reads are not.
func TestSessionExpiresAfterAnHour(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	for i, item := range []string{"a", "b", "c"} {
		l.add(newItemScored(item, int64(9-i)))
	}

	_, next := l.page(Scope{}, nil, 1)
	began := l.cursor.LastTime

	// For almost an hour, the scores of b and c change.
	l.add(newItemScored("b", 1), newItemScored("c", 100))
	for range 20 {
		l.advanceTime(SessionLifetime/20 - 10)
		l.add(newItemScored("c", int64(l.cursor.Seq)))
	}
	if page, _ := l.page(Scope{}, next, 5); !slices.Equal(page, []TrendingItem{{"b", 8}, {"c", 7}}) {
		t.Errorf("%d µs after the first page: got %v, want b and c with their old scores 8 and 7", l.cursor.LastTime-began, page)
	}

	// The session can still be read after exactly an hour.
	l.advanceTime(began + SessionLifetime - l.cursor.LastTime - 1)
	l.add(events.Event{Kind: events.Played, User: "ann", Item: "x"})
	if page, _ := l.page(Scope{}, next, 5); len(page) != 2 {
		t.Errorf("an hour after the first page: got %v, want 2 items", page)
	}

	// A microsecond later it has expired.
	l.add(events.Event{Kind: events.Played, User: "ann", Item: "x"})
	v := mustView(t, l.s)
	defer v.Close()
	if _, _, err := NewQueries(v).Trending(context.Background(), Scope{}, next, 5); !errors.Is(err, ErrExpired) {
		t.Errorf("more than an hour after the first page: got error %v, want %v", err, ErrExpired)
	}
}

// itemLog folds events that a test writes by hand. Each call of add is one envelope.
type itemLog struct {
	t      testing.TB
	set    sizes
	s      *store.Store
	cursor events.Cursor
}

func newItemLog(t testing.TB, set sizes) *itemLog {
	return &itemLog{
		t: t, set: set, s: openStore(t, set, store.Bounds{}),
		cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start},
	}
}

func (l *itemLog) close() {
	l.t.Helper()
	if err := l.s.Close(); err != nil {
		l.t.Error(err)
	}
}

// advanceTime adds d to the log time.
func (l *itemLog) advanceTime(d events.Micros) { l.cursor.LastTime += d }

// add folds an envelope with the events, to which it gives their positions and log times.
func (l *itemLog) add(list ...events.Event) {
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

	env.Cursor = l.cursor
	mustFold(l.t, l.s, env)
}

// addAll adds events in envelopes of a thousand.
func (l *itemLog) addAll(list []events.Event) {
	l.t.Helper()
	for part := range slices.Chunk(list, events.MaxEnvelopeEvents) {
		l.add(part...)
	}
}

// page reads one page of a list.
func (l *itemLog) page(s Scope, after PageCursor, n int) ([]TrendingItem, PageCursor) {
	l.t.Helper()
	v := mustView(l.t, l.s)
	defer v.Close()
	page, next, err := l.set.query(v).Trending(context.Background(), s, after, n)
	if err != nil {
		l.t.Fatalf("list %+v: %v", s, err)
	}
	return page, next
}

func newPinCreated(owner, pin, board, item string) events.Event {
	return events.Event{Kind: events.PinCreated, User: owner, Pin: pin, Board: board, Item: item}
}

func newItemScored(item string, score int64) events.Event {
	return events.Event{Kind: events.ItemScored, Item: item, Score: score}
}
