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
		rows := func(p projections.Projection) (rows []conformance.Row) {
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
			if p.(*graph.Graph) == outGraph {
				compareOutEnds(t, v, model.New(history).At(v.Cursor().LastTime))
			}
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
		if diff := conformance.Rows(rows(outGraph)).Diff(rows(graph.New())); diff != "" {
			t.Fatal(diff)
		}
	})
}

// outGraph is the projection under test.
var outGraph = graph.NewOutEnds(nil)

// compareOutEnds compares what the rows of out-ends say with the model.
func compareOutEnds(t *rapid.T, v *projections.View, want *model.Graph) {
	q := graph.NewQueries(v)
	must := func(err error) {
		if err != nil {
			t.Fatalf("query: %v", err)
		}
	}
	region := func(prefix []byte) (users []string) {
		it := v.Iter(prefix, projections.PrefixEnd(prefix))
		for it.Next() {
			r, err := graph.DecodeRegionRow(it.Key()[len(prefix):], it.Value())
			must(err)
			if r.Follows {
				id, _, err := events.CutID(r.Key)
				must(err)
				users = append(users, id)
			}
		}
		must(it.Close())
		return users
	}
	same := func(what string, got []string, list []model.Entry) {
		var names []string
		for _, e := range list {
			name := e.User
			if e.Owner != "" {
				name = e.Owner + " " + e.Board
			}
			names = append(names, name)
		}
		slices.Sort(got)
		if slices.Sort(names); !slices.Equal(got, names) {
			t.Fatalf("%s: %q, want %q", what, got, names)
		}
	}
	for _, a := range want.Users() {
		var users, boards []string
		must(q.EachFollowee(a, func(user string) error { users = append(users, user); return nil }))
		must(q.EachFollowedBoard(a, func(owner, board string) error { boards = append(boards, owner+" "+board); return nil }))
		same("whom "+a+" follows", users, want.Following(a, model.Explicit))
		same("boards that "+a+" follows", boards, want.FollowedBoards(a))
		same("region of "+a, region(graph.RegionPrefix(nil, a)), want.Followers(a, model.Explicit))
		for _, b := range want.BoardsMentioned() {
			if a == b.Owner {
				continue
			}
			f := want.Board(a, b.Owner, b.Board)
			s, err := q.Visibility(a, b.Owner)
			must(err)
			sees := s.Explicit
			if s.Boards {
				sees, err = q.SeesBoard(a, b.Owner, b.Board)
				must(err)
			}
			if exists := f.Kind != model.None || len(want.BoardFollowers(b.Owner, b.Board, model.All)) > 0; exists && sees != (f.Kind == model.Explicit || f.Kind == model.Board) {
				t.Fatalf("%s sees %v: %v, but follows it %v", a, b, sees, f.Kind)
			}
		}
	}
	for _, b := range want.BoardsMentioned() {
		same("region of "+b.Owner+" "+b.Board, region(graph.BoardRegionPrefix(nil, b.Owner, b.Board)), want.BoardFollowers(b.Owner, b.Board, model.OnBoard))
	}
}
