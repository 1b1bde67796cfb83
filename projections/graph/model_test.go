package graph_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// mustOpenStore opens a store in memory. It stores lists of follows that are longer than shortList,
// and holds the partitions; nil means all.
func mustOpenStore(t fataler, shortList int, partitions *events.Partitions) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{
		FS:         vfs.NewMem(),
		Dir:        "data",
		Projection: graph.New().WithShortList(shortList),
		Partitions: partitions,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// TestQueriesAgreeWithModel demands that, at every position of every history, every query has the
// model's answer, and every count is the length of its list (I7), whether the lists of follows are
// stored or sorted.
func TestQueriesAgreeWithModel(t *testing.T) {
	rapid.Check(t, foldAndExpectModelAnswers(histories.Options{}))
}

// TestQueriesAgreeWithModelInHistoriesOfFeeds demands the same in histories in which most boards
// begin with a pin, and envelopes may be very large.
func TestQueriesAgreeWithModelInHistoriesOfFeeds(t *testing.T) {
	rapid.Check(t, foldAndExpectModelAnswers(histories.Options{Feeds: true}))
}

// foldAndExpectModelAnswers returns a property: at every position of a history, the store has the
// answers of the model.
func foldAndExpectModelAnswers(opt histories.Options) func(*rapid.T) {
	return func(t *rapid.T) {
		history := histories.History(t, opt)
		s := mustOpenStore(t, rapid.SampledFrom([]int{0, 1, 2, graph.DefaultShortList}).Draw(t, "short"), nil)
		defer s.Close()

		folded := 0
		for _, env := range histories.Envelopes(history) {
			if err := s.Fold([]*events.Envelope{env}); err != nil {
				t.Fatalf("fold %d: %v", env.Seq(), err)
			}
			folded += len(env.Events)
			expectModelAnswers(t, s, model.New(history[:folded]), holdsEveryUser)
		}
	}
}

// TestQueriesAgreeWithModelInLongHistories demands the same at some positions of long seeded
// histories, in which much state accumulates. Half of them are about feeds.
func TestQueriesAgreeWithModelInLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 150
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			history := histories.Fixed(seed, n)
			if seed >= 4 {
				history = histories.FixedFeeds(seed, n)
			}
			s := mustOpenStore(t, int(seed%4), nil)
			folded := 0
			for i, env := range histories.Envelopes(history) {
				if err := s.Fold([]*events.Envelope{env}); err != nil {
					t.Fatalf("fold %d: %v", env.Seq(), err)
				}
				folded += len(env.Events)
				if i%16 == 0 || folded == len(history) {
					expectModelAnswers(t, s, model.New(history[:folded]), holdsEveryUser)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStoreOfSomePartitionsAnswersAsModel demands that a store of some partitions has the model's
// answer to every question about users whose homes it holds. Each answer takes rows of one user
// only, except those about a board or the followers of another user, which take rows of both (I13).
func TestStoreOfSomePartitionsAnswersAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{})
		var partitions events.Partitions
		for _, user := range model.New(history).Users() {
			if rapid.Bool().Draw(t, "held") {
				partitions.AddHome(user)
			}
		}
		s := mustOpenStore(t, rapid.SampledFrom([]int{0, graph.DefaultShortList}).Draw(t, "short"), &partitions)
		defer s.Close()
		if err := s.Fold(histories.Envelopes(history)); err != nil {
			t.Fatalf("fold: %v", err)
		}
		expectModelAnswers(t, s, model.New(history), func(user string) bool {
			return partitions.Has(events.ShardOf(user).Partition())
		})
	})
}

// TestEndOfBackfilledBlockRestoresNothing inserts a backfilled block and a backfilled follow
// anywhere among live follows, an exclusion and two unblocks. A store of all partitions, and a
// store of each user alone, must then have the model's answers at every position.
func TestEndOfBackfilledBlockRestoresNothing(t *testing.T) {
	live := []events.Event{
		{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: "art"},
		{Kind: events.BoardFollowed, User: "bob", Peer: "ann", Board: "art"},
		{Kind: events.UserUnblocked, User: "ann", Peer: "bob"},
		{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		{Kind: events.BoardFollowed, User: "bob", Peer: "ann", Board: "art"},
		{Kind: events.UserUnblocked, User: "ann", Peer: "bob"},
	}
	follow := events.Event{
		Kind: events.UserFollowed, User: "bob", Peer: "ann", Backfill: true, Source: "old", Offset: 1, Time: 7,
	}
	everyone := []string{"ann", "bob"}
	for _, blocker := range everyone {
		block := events.Event{
			Kind: events.UserBlocked, User: blocker, Backfill: true, Source: "old", Offset: 1, Time: 5,
		}
		block.Peer = everyone[1-slices.Index(everyone, blocker)]
		for blockAt := range len(live) + 1 {
			for followAt := range len(live) + 2 {
				history := slices.Insert(slices.Insert(slices.Clone(live), blockAt, block), followAt, follow)
				for i := range history {
					history[i].Seq = uint64(i) + 1
					if !history[i].Backfill {
						history[i].Time = histories.Start + events.Micros(i)*1_000_000
					}
				}
				compareAtEveryPosition(t, history, everyone)
				for _, user := range everyone {
					compareAtEveryPosition(t, history, []string{user})
				}
			}
		}
	}
}

// TestEndOfBlockAfterImportsRestoresNothing demands that what a user follows and excludes while a
// backfilled block stands does not come back when the block ends, even if no more history can
// arrive.
func TestEndOfBlockAfterImportsRestoresNothing(t *testing.T) {
	history := []events.Event{
		{Kind: events.UserBlocked, User: "bob", Peer: "ann", Backfill: true, Source: "old", Offset: 1, Time: 5},
		{Kind: events.BackfillClosed},
		{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: "art"},
		{Kind: events.BoardFollowed, User: "ann", Peer: "bob", Board: "9"},
		{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: ""},
		{Kind: events.UserUnblocked, User: "bob", Peer: "ann"},
	}
	for i := range history {
		history[i].Seq = uint64(i) + 1
		if !history[i].Backfill {
			history[i].Time = histories.Start + events.Micros(i)*1_000_000
		}
	}

	compareAtEveryPosition(t, history, []string{"ann", "bob"})
}

// compareAtEveryPosition folds a history into a store of the homes of some users. At every
// position, the store must have the model's answers about these users.
func compareAtEveryPosition(t *testing.T, history []events.Event, users []string) {
	t.Helper()
	var partitions events.Partitions
	for _, user := range users {
		partitions.AddHome(user)
	}
	s := mustOpenStore(t, graph.DefaultShortList, &partitions)
	for i, env := range histories.Envelopes(history) {
		if err := s.Fold([]*events.Envelope{env}); err != nil {
			t.Fatalf("fold %d: %v", env.Seq(), err)
		}
		expectModelAnswers(t, s, model.New(history[:i+1]), func(user string) bool {
			return slices.Contains(users, user)
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func holdsEveryUser(string) bool { return true }

// expectModelAnswers demands the answers of the model to every question about the users that the
// store holds.
func expectModelAnswers(t fataler, s *store.Store, want *model.Graph, holds func(user string) bool) {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	defer v.Close()
	q := graph.NewQueries(v)
	want.At(v.Cursor().LastTime) // the time by which mutes end

	expectNoError := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("query at %d: %v", v.Cursor().Seq, err)
		}
	}
	expectSame := func(got, want any, format string, args ...any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("at %d: %s:\n got %+v\nwant %+v", v.Cursor().Seq, fmt.Sprintf(format, args...), got, want)
		}
	}
	// expectList demands the pages of a list, and its length.
	expectList := func(l graph.List, want []model.Entry) {
		t.Helper()
		var got []graph.Entry
		var after graph.PageCursor
		for {
			page, next, err := q.List(context.Background(), l, after, 2)
			expectNoError(err)
			got = append(got, page...)
			if next == nil {
				break
			}
			if len(page) != 2 {
				t.Fatalf("at %d: list %+v: got a page of %d entries before the last page, want 2",
					v.Cursor().Seq, l, len(page))
			}
			after = next
		}
		expectSame(got, toEntries(want), "list %+v", l)
		if l.Kind != graph.Mutuals {
			total, err := q.Total(l)
			expectNoError(err)
			expectSame(total, int64(len(want)), "total of %+v", l)
		}
	}

	users := append(want.Users(), "stranger")
	boards := want.BoardsMentioned()
	for _, a := range users {
		if !holds(a) {
			continue
		}
		follows := make([]graph.Follow, len(users))
		expectNoError(q.UserFollows(a, users, follows))
		for i, b := range users {
			if a == b {
				continue
			}
			f, err := q.UserFollow(a, b)
			expectNoError(err)
			expectSame(f, toFollow(want.User(a, b)), "%s follows %s", a, b)
			expectSame(follows[i], f, "%s follows %s, among others", a, b)
			r, err := q.Relationship(a, b)
			expectNoError(err)
			expectSame(r, toRelationship(want.Relationship(a, b)), "relationship of %s with %s", a, b)
			settings, err := q.FollowSettings(a, b)
			expectNoError(err)
			expectSame(settings, r.Settings, "settings of the follow of %s by %s", b, a)
			if holds(b) {
				expectList(graph.List{Kind: graph.Mutuals, User: a, Peer: b}, want.Mutuals(a, b))
			}
		}
		for _, b := range boards {
			if a == b.Owner || !holds(b.Owner) {
				continue
			}
			f, err := q.BoardFollow(a, b.Owner, b.Board)
			expectNoError(err)
			expectSame(f, toFollow(want.Board(a, b.Owner, b.Board)), "%s follows board %v", a, b)
		}
		expectList(graph.List{Kind: graph.Following, User: a}, want.Following(a, model.None))
		expectList(graph.List{Kind: graph.FollowingExplicit, User: a}, want.Following(a, model.Explicit))
		expectList(graph.List{Kind: graph.FollowingImplicit, User: a}, want.Following(a, model.Implicit))
		expectList(graph.List{Kind: graph.Followers, User: a}, want.Followers(a, model.None))
		expectList(graph.List{Kind: graph.FollowersExplicit, User: a}, want.Followers(a, model.Explicit))
		expectList(graph.List{Kind: graph.FollowersImplicit, User: a}, want.Followers(a, model.Implicit))
		expectList(graph.List{Kind: graph.FollowedBoards, User: a}, want.FollowedBoards(a))
		expectList(graph.List{Kind: graph.ExcludedBoards, User: a}, want.ExcludedBoards(a))
		expectList(graph.List{Kind: graph.Boards, User: a}, want.Boards(a))
		expectList(graph.List{Kind: graph.Blocked, User: a}, want.Blocked(a))
		expectList(graph.List{Kind: graph.Muted, User: a}, want.Muted(a))
		expectList(graph.List{Kind: graph.Favorites, User: a}, want.With(a, events.SettingFavorite))
		expectList(graph.List{Kind: graph.Notifying, User: a}, want.With(a, events.SettingNotify))

		var firstMuteEnd events.Micros
		for _, muted := range want.Muted(a) {
			if muted.Until != 0 && (firstMuteEnd == 0 || muted.Until < firstMuteEnd) {
				firstMuteEnd = muted.Until
			}
		}
		end, err := q.FirstMuteEnd(a)
		expectNoError(err)
		expectSame(end, firstMuteEnd, "the first end of a mute of %s", a)
	}
	for _, b := range boards {
		if !holds(b.Owner) {
			continue
		}
		l := graph.List{User: b.Owner, Board: b.Board}
		for kind, which := range map[graph.ListKind]model.BoardList{
			graph.BoardFollowers:         model.All,
			graph.BoardFollowersExplicit: model.OnBoard,
			graph.BoardExcluders:         model.Excluders,
		} {
			l.Kind = kind
			expectList(l, want.BoardFollowers(b.Owner, b.Board, which))
		}
	}
}

// toFollow, toRelationship and toEntries convert answers of the model to answers of the graph.
func toFollow(f model.Follow) graph.Follow {
	return graph.Follow{Kind: graph.FollowKind(f.Kind), Since: f.Since}
}

func toRelationship(r model.Relationship) graph.Relationship {
	return graph.Relationship{
		Following: toFollow(r.Following), FollowedBy: toFollow(r.FollowedBy),
		Blocking: r.Blocking, BlockedBy: r.BlockedBy, Muting: r.Muting,
		MuteUntil: r.MuteUntil, Settings: r.Settings,
	}
}

func toEntries(want []model.Entry) []graph.Entry {
	var list []graph.Entry
	for _, e := range want {
		entry := graph.Entry{
			User:     e.User,
			Board:    e.Board,
			Title:    e.Title,
			Kind:     graph.FollowKind(e.Kind),
			Since:    e.Since,
			Settings: e.Settings,
			Until:    e.Until,
		}
		if e.Owner != "" {
			entry.User = e.Owner
		}
		list = append(list, entry)
	}
	return list
}
