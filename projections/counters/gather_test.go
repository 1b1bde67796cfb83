package counters

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// part is the state of a store that holds some partitions.
type part struct {
	held events.Partitions
	q    *Queries
}

// otherStates is a RemoteLookup that answers from all states but the one that runs the query.
type otherStates struct {
	t     failer
	here  events.Partitions
	parts []part
}

func (o *otherStates) Holds(home string) bool { return o.here.Has(events.ShardOf(home).Partition()) }
func (*otherStates) Unresolved() bool         { return false }
func (*otherStates) Full() bool               { return false }

// queriesOf returns the queries of the part that holds the home.
func (o *otherStates) queriesOf(home string) *Queries {
	for _, p := range o.parts {
		if p.held.Has(events.ShardOf(home).Partition()) {
			return p.q
		}
	}
	o.t.Fatalf("no state holds %s", home)
	return nil
}

func (o *otherStates) check(err error) {
	if err != nil {
		o.t.Helper()
		o.t.Fatalf("answer of another state: %v", err)
	}
}

func (o *otherStates) Score(item string, seq uint64) (score int64, scored, known bool) {
	scores := o.queriesOf(item).ScoresAt(seq)
	score, scored, err := scores.Of(item)
	o.check(err)
	o.check(scores.Close())
	return score, scored, true
}

func (o *otherStates) OwnReactions(user, item string) (kinds []string, known bool) {
	kinds, err := o.queriesOf(item).OwnReactions(user, item)
	o.check(err)
	return kinds, true
}

func (o *otherStates) Reactors(item, kind string, after PageCursor, n int) (part ReactorPart, known bool) {
	part, err := o.queriesOf(item).LocalReactors(context.Background(), item, kind, after, n)
	o.check(err)
	return part, true
}

func (o *otherStates) Reactions(user, kind string, after PageCursor, n int) (parts []ReactionPart, known bool) {
	for _, p := range o.parts {
		part, err := p.q.LocalReactions(context.Background(), user, kind, after, n)
		o.check(err)
		parts = append(parts, part)
	}
	return parts, true
}

func (o *otherStates) Candidates(owner string, seq uint64, after []byte, n int) (parts []CandidatePart, known bool) {
	for _, p := range o.parts {
		part, err := p.q.Candidates(context.Background(), owner, seq, after, n)
		o.check(err)
		parts = append(parts, part)
	}
	return parts, true
}

// drawParts draws how many states there are, and which one or two of them hold each partition with
// a home.
func drawParts(t *rapid.T, homes []string) []events.Partitions {
	sets := make([]events.Partitions, rapid.IntRange(2, 4).Draw(t, "states"))
	choice := map[uint8][2]int{}
	for _, home := range homes {
		p := events.ShardOf(home).Partition()
		if _, ok := choice[p]; !ok {
			choice[p] = [2]int{rapid.IntRange(0, len(sets)-1).Draw(t, "a"), rapid.IntRange(0, len(sets)-1).Draw(t, "b")}
		}
	}
	// Partitions without a home are all in the first state.
	for p := range events.NumPartitions {
		for _, i := range choice[uint8(p)] {
			sets[i].Add(uint8(p))
		}
	}
	return sets
}

// TestGatheredPagesAreThoseOfOneState checks that, whichever partitions each state holds, one of them
// that asks the others answers every page as a state with all partitions does.
func TestGatheredPagesAreThoseOfOneState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := drawSizes(t)
		want := model.New(history)
		users := append(want.Users(), "stranger")

		// Fold the history into each state, and last into one with all partitions.
		sets := drawParts(t, append(itemsIn(history), users...))
		all := events.AllPartitions()
		var parts []part
		for _, held := range append(sets, all) {
			s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: set.projection(), Partitions: &held})
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			defer s.Close()
			for _, env := range histories.Envelopes(history) {
				mustFold(t, s, env)
			}
			v := mustView(t, s)
			defer v.Close()
			parts = append(parts, part{held, set.query(v)})
		}
		whole := parts[len(sets)].q

		// queriesAt returns queries of a state that holds a home, and that asks the others. For
		// everybody's list, which has no home, it is the first state.
		queriesAt := func(home string) *Queries {
			for i, held := range sets {
				if home == "" || held.Has(events.ShardOf(home).Partition()) {
					rest := append(append([]part{}, parts[:i]...), parts[i+1:len(sets)]...)
					q := *parts[i].q
					return q.WithRemote(&otherStates{t, held, rest})
				}
			}
			t.Fatalf("no state holds %s", home)
			return nil
		}

		size := rapid.IntRange(1, 3).Draw(t, "page size")
		for _, user := range append(users, "") {
			if user != "" {
				for _, kind := range someKinds {
					expectSamePages(t, "reactions of "+user, func(q *Queries, after PageCursor) (any, PageCursor, error) {
						return result(q.Reactions(context.Background(), user, kind, after, size))
					}, whole, queriesAt(user))
				}
			}
			expectSamePages(t, "list of "+user, func(q *Queries, after PageCursor) (any, PageCursor, error) {
				return result(q.Trending(context.Background(), Scope{Owner: user}, after, size))
			}, whole, queriesAt(user))
		}
		for _, item := range want.Items() {
			for _, kind := range someKinds {
				// Any state may be asked who reacted, because the home of the viewer chooses the
				// state that makes the page.
				expectSamePages(t, "who reacted to "+item, func(q *Queries, after PageCursor) (any, PageCursor, error) {
					part, next, err := q.Reactors(context.Background(), item, kind, after, size)
					return part, next, err
				}, whole, queriesAt(""))
			}
		}
		for _, b := range want.BoardsMentioned() {
			expectSamePages(t, "list of a board of "+b.Owner, func(q *Queries, after PageCursor) (any, PageCursor, error) {
				return result(q.Trending(context.Background(), Scope{b.Owner, &b.Board}, after, size))
			}, whole, queriesAt(b.Owner))
		}
	})
}

// countedStates counts the candidates that the query has asked for. It knows a score only once the
// score was fetched.
type countedStates struct {
	*otherStates
	asked            int
	pending, fetched map[string]bool
}

func (o *countedStates) Unresolved() bool { return len(o.pending) > 0 }
func (o *countedStates) Full() bool       { return len(o.pending) > 1 }

func (o *countedStates) Candidates(owner string, seq uint64, after []byte, n int) ([]CandidatePart, bool) {
	o.asked += n
	return o.otherStates.Candidates(owner, seq, after, n)
}

func (o *countedStates) Score(item string, seq uint64) (score int64, scored, known bool) {
	if !o.fetched[item] {
		o.pending[item] = true
		return 0, false, false
	}
	return o.otherStates.Score(item, seq)
}

// page reads a page, and runs the query again until all scores are fetched.
func (o *countedStates) page(q *Queries, after PageCursor, n int) ([]TrendingItem, PageCursor) {
	for {
		o.asked = 0
		page, next, err := q.Trending(context.Background(), Scope{Owner: "ann"}, after, n)
		if !o.Unresolved() {
			o.check(err)
			return page, next
		}
		// A fetch has the scores of up to maxComputedPins items, or else is full.
		if limit := int(q.maxComputedPins) + 1; len(o.pending) > limit {
			o.t.Fatalf("got %d questions for one fetch, want at most %d", len(o.pending), limit)
		}
		maps.Copy(o.fetched, o.pending)
		clear(o.pending)
	}
}

// TestGatheredPageOfEndedPinsIsComputed checks that a page of an owner with many ended pins is
// computed from the few living pins, and does not read all candidates.
func TestGatheredPageOfEndedPinsIsComputed(t *testing.T) {
	const living, ended, size = 20, 1000, 5
	var history []events.Event
	for i := range living + ended {
		item := fmt.Sprint(i)
		history = append(history, newPinCreated("ann", item, "", item), newItemScored(item, int64(i)))
	}
	for i := range ended {
		history = append(history, events.Event{Kind: events.PinDeleted, User: "ann", Pin: fmt.Sprint(living + i)})
	}

	// The second state has all partitions that the first one lacks.
	var home events.Partitions
	home.AddHome("ann")
	all := events.AllPartitions()
	set := defaultSizes()
	set.maxComputedPins = living / 2
	var parts []part
	for _, held := range []events.Partitions{home, all.Without(&home), all} {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: set.projection(), Partitions: &held})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		cursor := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start}
		(&itemLog{t: t, set: set, s: s, cursor: cursor}).addAll(history)
		v := mustView(t, s)
		defer v.Close()
		parts = append(parts, part{held, set.query(v)})
	}

	others := &countedStates{
		otherStates: &otherStates{t, home, parts[1:2]}, pending: map[string]bool{}, fetched: map[string]bool{},
	}
	split := parts[0].q.WithRemote(others)
	var after PageCursor
	for page := 1; page == 1 || after != nil; page++ {
		got, next := others.page(split, after, size)
		want, _, err := parts[2].q.Trending(t.Context(), Scope{Owner: "ann"}, after, size)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != size {
			t.Errorf("page %d (-one state +several states):\n%s", page, diff)
		}
		// The last round before the limit may ask for as many candidates as all before it.
		if limit := 4 * maxRowsPerPin * living; others.asked > limit {
			t.Errorf("page %d: asked for %d candidates, want at most %d", page, others.asked, limit)
		}
		after = next
	}
}

// result returns a page of any type, for expectSamePages.
func result[T any](page []T, next PageCursor, err error) (any, PageCursor, error) {
	return page, next, err
}

// expectSamePages checks that whole and split return the same entries on each page, and the same
// page cursors.
func expectSamePages(t failer, name string, page func(*Queries, PageCursor) (any, PageCursor, error), whole, split *Queries) {
	t.Helper()
	var after PageCursor
	for {
		want, next, err := page(whole, after)
		if err != nil {
			t.Fatalf("%s, asked of one state: %v", name, err)
		}
		got, gotNext, err := page(split, after)
		if err != nil {
			t.Fatalf("%s, asked of several states: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-one state +several states):\n%s", name, diff)
		}
		if diff := cmp.Diff(next, gotNext); diff != "" {
			t.Fatalf("page cursor of %s (-one state +several states):\n%s", name, diff)
		}

		if next == nil {
			return
		}
		after = next
	}
}

// TestMergedReactionsKeepTheLatestTime merges the lists of states at different positions. An item
// that was reacted to again between them must be in a page once, with the later time.
func TestMergedReactionsKeepTheLatestTime(t *testing.T) {
	o := &otherStates{t: t}
	q := &Queries{remote: reactionParts{o, []ReactionPart{
		{Items: []ReactedItem{{"a", 3}, {"b", 1}}},
		{Items: []ReactedItem{{"a", 2}, {"c", 1}}, More: true},
	}}}

	items, more := q.mergeReactions(ReactionPart{}, "ann", "", nil, 2)
	if diff := cmp.Diff([]ReactedItem{{"a", 3}, {"b", 1}}, items); diff != "" {
		t.Errorf("merged items (-want +got):\n%s", diff)
	}
	if !more {
		t.Error("got no further items after the merged page, want more")
	}
}

// reactionParts returns the same parts for the reactions of every user.
type reactionParts struct {
	*otherStates
	parts []ReactionPart
}

func (l reactionParts) Reactions(string, string, PageCursor, int) ([]ReactionPart, bool) {
	return l.parts, true
}
