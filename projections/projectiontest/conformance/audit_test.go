package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// auditedStores has the stores whose counts and lists must agree.
type auditedStores struct{ graph, inbox, counters *store.Store }

// openStores opens an empty store of each audited projection.
func openStores(t fataler) auditedStores {
	t.Helper()
	open := func(p projections.Projection) *store.Store {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: dataDir, Projection: p})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	}
	return auditedStores{
		graph:    open(graph.New()),
		inbox:    open(inbox.New(inbox.DefaultSettings())),
		counters: open(counters.New(counters.DefaultSettings())),
	}
}

func (s auditedStores) all() []*store.Store {
	return []*store.Store{s.graph, s.inbox, s.counters}
}

func (s auditedStores) fold(t fataler, envs ...*events.Envelope) {
	t.Helper()
	for _, store := range s.all() {
		if err := store.Fold(envs); err != nil {
			t.Fatalf("fold: %v", err)
		}
	}
}

func (s auditedStores) close(t fataler) {
	t.Helper()
	for _, store := range s.all() {
		if err := store.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

// audit compares the counts of some users and boards with the lengths of their lists (I7).
func (s auditedStores) audit(t fataler, users []string, boards [][2]string) {
	t.Helper()
	var views []*projections.View
	for _, store := range s.all() {
		v, err := store.View()
		if err != nil {
			t.Fatalf("view: %v", err)
		}
		defer v.Close()
		views = append(views, v)
	}
	g := graph.NewQueries(views[0])
	in := inbox.Query(views[1])
	c := counters.NewQueries(views[2])
	ctx := context.Background()

	// countList and countPins return the lengths of lists.
	countList := func(kind graph.ListKind, user, board string) (n int64) {
		t.Helper()
		var after graph.PageCursor
		for {
			page, next, err := g.List(ctx, graph.List{Kind: kind, User: user, Board: board}, after, 1000)
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			n += int64(len(page))
			if next == nil {
				return n
			}
			after = next
		}
	}
	countPins := func(owner string, board *string) (n int64) {
		t.Helper()
		var after inbox.PageCursor
		for {
			page, next, err := in.Pins(ctx, owner, board, after, 1000)
			if err != nil {
				t.Fatalf("pins: %v", err)
			}
			n += int64(len(page))
			if next == nil {
				return n
			}
			after = next
		}
	}

	at := views[0].Cursor().Seq
	for _, user := range users {
		got, err := g.UserCounts(user)
		if err != nil {
			t.Fatalf("counts of %s: %v", user, err)
		}
		want := graph.UserCounts{
			Boards:            countList(graph.Boards, user, ""),
			Followers:         countList(graph.FollowersExplicit, user, ""),
			FollowersImplicit: countList(graph.FollowersImplicit, user, ""),
			Following:         countList(graph.FollowingExplicit, user, ""),
			FollowingImplicit: countList(graph.FollowingImplicit, user, ""),
			FollowedBoards:    countList(graph.FollowedBoards, user, ""),
			ExcludedBoards:    countList(graph.ExcludedBoards, user, ""),
			Blocked:           countList(graph.Blocked, user, ""),
			Muted:             countList(graph.Muted, user, ""),
			Favorites:         countList(graph.Favorites, user, ""),
			Notifying:         countList(graph.Notifying, user, ""),
		}
		if got != want { // cmp.Diff is slow
			t.Fatalf("at %d: counts of %s differ from the lengths of the lists (-want +got):\n%s", at, user, cmp.Diff(want, got))
		}
		n, err := c.UserCounts(user)
		if err != nil {
			t.Fatalf("counts of %s: %v", user, err)
		}
		if wantPins := countPins(user, nil); n.Pins != wantPins {
			t.Fatalf("at %d: got %d pins of %s, want %d as in the list", at, n.Pins, user, wantPins)
		}
	}

	for _, b := range boards {
		got, err := g.BoardCounts(b[0], b[1])
		if err != nil {
			t.Fatalf("counts of %v: %v", b, err)
		}
		want := graph.BoardCounts{
			Followers: countList(graph.BoardFollowersExplicit, b[0], b[1]),
			Excluders: countList(graph.BoardExcluders, b[0], b[1]),
			Appears:   countList(graph.BoardFollowers, b[0], b[1]),
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(graph.BoardCounts{})); diff != "" {
			t.Fatalf("at %d: counts of %v differ from the lengths of the lists (-want +got):\n%s", at, b, diff)
		}
		n, err := c.BoardPins(b[0], b[1])
		if err != nil {
			t.Fatalf("pins on %v: %v", b, err)
		}
		if wantPins := countPins(b[0], &b[1]); n != wantPins {
			t.Fatalf("at %d: got %d pins on %v, want %d as in the list", at, n, b, wantPins)
		}
	}
}

// usersAndBoards returns the users and boards that a history names.
func usersAndBoards(history []events.Event) (users []string, boards [][2]string) {
	add := func(user, board string) {
		if user != "" && !slices.Contains(users, user) {
			users = append(users, user)
			boards = append(boards, [2]string{user, ""})
		}
		if b := [2]string{user, board}; user != "" && board != "" && !slices.Contains(boards, b) {
			boards = append(boards, b)
		}
	}
	for _, ev := range history {
		if ev.Kind == events.BoardFollowed || ev.Kind == events.BoardUnfollowed {
			add(ev.User, "")
			add(ev.Peer, ev.Board)
			continue
		}
		add(ev.User, ev.Board)
		add(ev.Peer, "")
	}
	return users, boards
}

// TestCountsAreLengthsOfLists checks after every envelope of every history that each count of graph
// and counters is the length of its list in graph or inbox.
func TestCountsAreLengthsOfLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt := rapid.SampledFrom([]histories.Options{{}, {Feeds: true}, {Plays: true}}).Draw(t, "kind")
		history := histories.History(t, opt)
		users, boards := usersAndBoards(history)
		s := openStores(t)
		defer s.close(t)
		for _, env := range histories.Envelopes(history) {
			s.fold(t, env)
			s.audit(t, users, boards)
		}
	})
}

// logWriter makes envelopes of a log, one after the other.
type logWriter struct {
	seq  uint64
	time events.Micros
}

// envelope returns the next envelope, with the given events.
func (l *logWriter) envelope(evs ...events.Event) *events.Envelope {
	l.seq++
	env := &events.Envelope{}
	for i, ev := range evs {
		l.time += 10
		ev.Seq = l.seq
		ev.Slot = uint16(i)
		if !ev.Backfill {
			ev.Time = l.time
		}
		env.Events = append(env.Events, ev)
		env.Kinds |= events.Kinds(ev.Kind)
	}
	env.Cursor = events.Cursor{Seq: l.seq, LastTime: l.time}
	return env
}

// TestCountsOfDeletedBoardAreLengthsOfLists deletes a board with 10,000 pins and 300 followers,
// creates it again, and pins the same pins again. Counts must be the lengths of lists after each
// envelope.
func TestCountsOfDeletedBoardAreLengthsOfLists(t *testing.T) {
	n, followers := 10_000, 300
	if testing.Short() {
		n, followers = 2000, 60
	}
	l := &logWriter{time: events.Micros(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro())}
	s := openStores(t)
	users := []string{"ann", "f1", "f2"}
	boards := [][2]string{{"ann", "art"}, {"ann", ""}, {"ann", "other"}}

	// fold folds an envelope, and compares the counts after it.
	fold := func(evs ...events.Event) {
		t.Helper()
		s.fold(t, l.envelope(evs...))
		s.audit(t, users, boards)
	}

	// pinAll pins all pins on the board.
	pinAll := func() {
		t.Helper()
		for first := 0; first < n; first += 500 {
			var evs []events.Event
			for i := range 500 {
				id := fmt.Sprint(first + i)
				evs = append(evs, events.Event{Kind: events.PinCreated, User: "ann", Board: "art", Pin: id, Item: id})
			}
			fold(evs...)
		}
	}

	// Each follower follows the board twice. A third of them follow the user as well, and exclude
	// another board.
	for i := range followers {
		user := fmt.Sprintf("f%d", i)
		followBoard := events.Event{Kind: events.BoardFollowed, User: user, Peer: "ann", Board: "art"}
		fold(followBoard, followBoard)
		if i%3 == 0 {
			followUser := events.Event{Kind: events.UserFollowed, User: user, Peer: "ann"}
			excludeBoard := events.Event{Kind: events.BoardUnfollowed, User: user, Peer: "ann", Board: "other"}
			fold(followUser, followUser, excludeBoard)
		}
	}

	// Pins are created, deleted, moved and created elsewhere.
	pinAll()
	deletePin := events.Event{Kind: events.PinDeleted, User: "ann", Pin: "7"}
	fold(deletePin, deletePin)
	fold(events.Event{Kind: events.PinCreated, User: "ann", Board: "other", Pin: "7", Item: "7"})
	fold(events.Event{Kind: events.PinMoved, User: "ann", Pin: "8"})
	fold(
		events.Event{Kind: events.UserUnfollowed, User: "never", Peer: "ann"},
		events.Event{Kind: events.UserUnfollowed, User: "f1", Peer: "f2"},
	)

	// The board is deleted twice. A pin on it is ignored until the board is created again.
	fold(events.Event{Kind: events.BoardDeleted, User: "ann", Board: "art"})
	fold(events.Event{Kind: events.BoardDeleted, User: "ann", Board: "art"})
	fold(events.Event{Kind: events.PinCreated, User: "ann", Board: "art", Pin: "9", Item: "9"})
	fold(events.Event{Kind: events.BoardCreated, User: "ann", Board: "art"})
	pinAll()

	// A follower and the owner are deleted.
	fold(events.Event{Kind: events.UserDeleted, User: "f2"})
	fold(events.Event{Kind: events.UserDeleted, User: "ann"})
	fold(events.Event{Kind: events.BoardFollowed, User: "f1", Peer: "ann", Board: "art"})
	s.close(t)
}

// TestRepeatedImportCountsOnce checks that an import that runs twice, in two sources, before and
// after live facts, counts once.
func TestRepeatedImportCountsOnce(t *testing.T) {
	l := &logWriter{time: events.Micros(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro())}
	s := openStores(t)
	users := []string{"ann", "bob", "cid"}
	boards := [][2]string{{"bob", "art"}, {"bob", ""}, {"cid", "art"}}
	backfill := func(offset uint64, ev events.Event) events.Event {
		ev.Backfill = true
		ev.Source = "old"
		ev.Offset = offset
		ev.Time = events.Micros(offset)*1000 + 1
		return ev
	}

	runImport := func() {
		for i := uint64(1); i <= 40; i++ {
			s.fold(t, l.envelope(
				backfill(i, events.Event{Kind: events.UserFollowed, User: users[i%3], Peer: users[(i+1)%3]}),
				backfill(i, events.Event{Kind: events.PinCreated, User: "bob", Board: "art", Pin: fmt.Sprint(i % 7), Item: fmt.Sprint(i % 3)}),
				backfill(i, events.Event{Kind: events.Reacted, User: users[i%3], Item: fmt.Sprint(i % 5)}),
				backfill(i, events.Event{Kind: events.Played, User: users[i%3], Item: "film"}),
			))
			s.audit(t, users, boards)
		}
	}

	// Import twice, with a live unfollow between.
	runImport()
	s.fold(t, l.envelope(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"}))
	s.audit(t, users, boards)
	runImport()

	v, err := s.counters.View()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(t)
	defer v.Close()
	film, err := counters.NewQueries(v).ItemCounts("film")
	if err != nil {
		t.Fatal(err)
	}
	if film.Plays != 40 {
		t.Errorf("got counts %+v of the film, want 40 plays", film)
	}
}
