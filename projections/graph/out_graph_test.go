package graph_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// TestOutGraphHasTheOutEndsOfTheWholeGraph demands that a graph of out-ends has the same rows as
// the out-ends of the whole graph, and answers what a reader sees and whom a post concerns.
func TestOutGraphHasTheOutEndsOfTheWholeGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{})
		gotRows := foldAndReadOutEnds(t, graph.NewOutEnds(nil), history, func(v *projections.View) {
			expectModelOutEnds(t, v, model.New(history).At(v.Cursor().LastTime))
		})

		wantRows := foldAndReadOutEnds(t, graph.New(), history, func(*projections.View) {})
		if diff := gotRows.Diff(wantRows); diff != "" {
			t.Fatalf("rows of a graph of out-ends differ from the out-ends of the whole graph: %s", diff)
		}
	})
}

// foldAndReadOutEnds folds a history into a new store, calls check with a view of it, and returns
// the rows that a graph of out-ends has.
func foldAndReadOutEnds(
	t *rapid.T, p projections.Projection, history []events.Event, check func(*projections.View),
) (rows conformance.Rows) {
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: p})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer s.Close()

	if err := s.Fold(histories.Envelopes(history)); err != nil {
		t.Fatalf("fold: %v", err)
	}
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	defer v.Close()
	check(v)

	it := v.Iter(nil, nil)
	for it.Next() {
		if slices.Contains(graph.OutEndTags(), projections.Tag(it.Key()[2])) {
			rows = append(rows, conformance.Row{Key: bytes.Clone(it.Key()), Value: bytes.Clone(it.Value())})
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("iterate: %v", err)
	}
	return rows
}

// expectModelOutEnds demands the answers of the model to all questions that a graph of out-ends
// answers about follows.
func expectModelOutEnds(t *rapid.T, v *projections.View, want *model.Graph) {
	q := graph.NewQueries(v)
	expectNoError := func(err error) {
		if err != nil {
			t.Fatalf("query: %v", err)
		}
	}
	followersInRegion := func(prefix []byte) (users []string) {
		it := v.Iter(prefix, projections.PrefixEnd(prefix))
		for it.Next() {
			row, err := graph.DecodeRegionRow(it.Key()[len(prefix):], it.Value())
			expectNoError(err)
			if row.Follows {
				id, _, err := events.CutID(row.Key)
				expectNoError(err)
				users = append(users, id)
			}
		}
		expectNoError(it.Close())
		return users
	}
	expectSameNames := func(what string, got []string, wantEntries []model.Entry) {
		var wantNames []string
		for _, entry := range wantEntries {
			name := entry.User
			if entry.Owner != "" {
				name = entry.Owner + " " + entry.Board
			}
			wantNames = append(wantNames, name)
		}
		slices.Sort(got)
		slices.Sort(wantNames)
		if !slices.Equal(got, wantNames) {
			t.Fatalf("%s: got %q, want %q", what, got, wantNames)
		}
	}

	for _, reader := range want.Users() {
		var followees, boards []string
		expectNoError(q.EachFollowee(reader, func(user string) error {
			followees = append(followees, user)
			return nil
		}))
		expectNoError(q.EachFollowedBoard(reader, func(owner, board string) error {
			boards = append(boards, owner+" "+board)
			return nil
		}))
		expectSameNames("users whom "+reader+" follows", followees, want.Following(reader, model.Explicit))
		expectSameNames("boards that "+reader+" follows", boards, want.FollowedBoards(reader))
		expectSameNames("region of "+reader, followersInRegion(graph.RegionPrefix(nil, reader)),
			want.Followers(reader, model.Explicit))

		for _, b := range want.BoardsMentioned() {
			if reader == b.Owner {
				continue
			}
			visibility, err := q.Visibility(reader, b.Owner)
			expectNoError(err)
			sees := visibility.Explicit
			if visibility.Boards {
				sees, err = q.SeesBoard(reader, b.Owner, b.Board)
				expectNoError(err)
			}

			// A graph of out-ends does not know which boards exist, so its answers about a board
			// that does not exist do not count.
			follow := want.Board(reader, b.Owner, b.Board)
			exists := follow.Kind != model.None || len(want.BoardFollowers(b.Owner, b.Board, model.All)) > 0
			wantSees := follow.Kind == model.Explicit || follow.Kind == model.Board
			if exists && sees != wantSees {
				t.Fatalf("%s sees %v: got %v, want %v, because the follow is %v",
					reader, b, sees, wantSees, follow.Kind)
			}
		}
	}
	for _, b := range want.BoardsMentioned() {
		expectSameNames("region of "+b.Owner+" "+b.Board,
			followersInRegion(graph.BoardRegionPrefix(nil, b.Owner, b.Board)),
			want.BoardFollowers(b.Owner, b.Board, model.OnBoard))
	}
}
