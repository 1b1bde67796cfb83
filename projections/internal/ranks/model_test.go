package ranks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/model"
	"github.com/skein-feed/skein/projections/model/histories"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// relationStore opens a store in memory.
func relationStore(t failer, bounds projections.Bounds) *projections.Store {
	t.Helper()
	s, err := projections.Open(projections.Options{
		FS: vfs.NewMem(), Dir: "data", Projection: New(), Bounds: bounds,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func foldRelations(t failer, s *projections.Store, history []events.Event) {
	t.Helper()
	if err := s.Fold(histories.Envelopes(history)); err != nil {
		t.Fatalf("fold: %v", err)
	}
}

func relationView(t failer, s *projections.Store) *projections.View {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	return v
}

// TestRelationsModel: at every position of every history, whatever the bounds, every count is the length of the model's list
// (I7).
func TestRelationsModel(t *testing.T) {
	for _, feeds := range []bool{false, true} {
		t.Run(fmt.Sprintf("feeds=%v", feeds), rapid.MakeCheck(func(t *rapid.T) {
			history := histories.History(t, histories.Options{Feeds: feeds})
			bounds := rapid.SampledFrom([]projections.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds")
			s := relationStore(t, bounds)
			defer s.Close()
			folded := 0
			for _, env := range histories.Envelopes(history) {
				if err := s.Fold([]*events.Envelope{env}); err != nil {
					t.Fatalf("fold %d: %v", env.Seq(), err)
				}
				folded += len(env.Events)
				compareRelations(t, s, history[:folded])
			}
		}))
	}
}

// TestRelationsLongHistories does the same at some positions of long seeded histories, in which states pile up.
func TestRelationsLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(4) {
		history := histories.FixedFeeds(seed, n)
		if seed%2 == 1 {
			history = histories.Fixed(seed, n)
		}
		s := relationStore(t, projections.Bounds{})
		folded := 0
		for i, env := range histories.Envelopes(history) {
			if err := s.Fold([]*events.Envelope{env}); err != nil {
				t.Fatal(err)
			}
			if folded += len(env.Events); i%24 == 0 || folded == len(history) {
				compareRelations(t, s, history[:folded])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// compareRelations compares the relations of all who occur in a history, and of a stranger, with the model.
func compareRelations(t failer, s *projections.Store, history []events.Event) {
	t.Helper()
	want := model.New(history)
	v := relationView(t, s)
	defer v.Close()
	q := Query(v)
	for _, user := range append(want.Users(), "stranger") {
		got, err := q.User(user)
		if err != nil {
			t.Fatalf("relations of %s: %v\nafter\n%s", user, err, relationStory(history))
		}
		if lists := userLists(want, user); got != lists {
			t.Fatalf("relations of %s:\n got %+v\nwant %+v\nafter\n%s", user, got, lists, relationStory(history))
		}
	}
	for _, b := range append(want.BoardsMentioned(), model.BoardID{Owner: "stranger"}, model.BoardID{Owner: "ann", Board: "none"}) {
		got, err := q.Board(b.Owner, b.Board)
		if err != nil {
			t.Fatalf("relations of board %s/%s: %v\nafter\n%s", b.Owner, b.Board, err, relationStory(history))
		}
		if lists := boardLists(want, b); got != lists {
			t.Fatalf("relations of board %s/%s:\n got %+v\nwant %+v\nafter\n%s", b.Owner, b.Board, got, lists, relationStory(history))
		}
	}
}

func userLists(g *model.Graph, user string) UserCounts {
	n := func(list []model.Entry) int64 { return int64(len(list)) }
	return UserCounts{
		Boards:            n(g.Boards(user)),
		Followers:         n(g.Followers(user, model.Explicit)),
		FollowersImplicit: n(g.Followers(user, model.Implicit)),
		Following:         n(g.Following(user, model.Explicit)),
		FollowingImplicit: n(g.Following(user, model.Implicit)),
		FollowedBoards:    n(g.FollowedBoards(user)),
		ExcludedBoards:    n(g.ExcludedBoards(user)),
	}
}

func boardLists(g *model.Graph, b model.BoardID) BoardCounts {
	n := func(which model.BoardList) int64 { return int64(len(g.BoardFollowers(b.Owner, b.Board, which))) }
	return BoardCounts{Followers: n(model.OnBoard), Excluders: n(model.Excluders), Appears: n(model.All)}
}

// relationStory tells a history, one event a line.
func relationStory(history []events.Event) string {
	var out strings.Builder
	for i := range history {
		ev := &history[i]
		fmt.Fprintf(&out, "%d.%d %s %s %s/%s", ev.Seq, ev.Slot, ev.Kind, ev.User, ev.Peer, ev.Board)
		if ev.Backfill {
			fmt.Fprintf(&out, " backfill %s %d at %d", ev.Source, ev.Offset, ev.Time-histories.Start)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}
