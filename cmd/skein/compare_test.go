package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay/importer"
)

// changeAnswers returns an interceptor that changes each answer before the comparison sees it.
func changeAnswers(change func(answer any)) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			res, err := next(ctx, req)
			if err == nil {
				change(res.Any())
			}
			return res, err
		}
	})
}

// onAnswer returns a function that calls change with answers of one type, and ignores others.
func onAnswer[T any](change func(T)) func(any) {
	return func(answer any) {
		if typed, ok := answer.(T); ok {
			change(typed)
		}
	}
}

// comparedFiles are the files that the test imports and compares. Some facts are repeated, and
// boards get a follower before their own row.
var comparedFiles = map[importer.Kind]string{
	importer.Follows: `follower,user,time
ann,bob,2024-01-01
ann,cid,2024-01-02
dan,bob,2024-01-03
ann,bob,2024-01-04
`,
	importer.Boards: `owner,board,title,follower,time
gus,bread,Bread,,2024-01-02
gus,bread,,hal,2024-01-01
gus,,,hal,2024-01-03
gus,tea,,ivy,2024-01-04
gus,empty,,,2024-01-05
`,
}

// mustImport imports a file of a kind, and returns the options to compare the service with it. The
// options have no Graph yet.
func mustImport(t *testing.T, api *command.Client, kind importer.Kind, text string) importer.CompareOptions {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(kind)+".csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	publish := func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		res, err := api.Events().Publish(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	report, err := importer.Run(t.Context(), importer.Options{
		Kind: kind, Path: path, PublishOptions: importer.PublishOptions{LogID: "log", Publish: publish},
	})
	if err != nil {
		t.Fatal(err)
	}

	return importer.CompareOptions{
		Kind: kind, Path: path, StartedAt: report.StartedAt, AtLeast: report.Position, Pairs: 50, Seed: 1, Patience: time.Minute,
	}
}

// TestComparisonFindsEveryWrongAnswer demands that a comparison with a file of follows or boards
// reports every kind of wrong answer, and reports nothing if all answers are right.
//
//nolint:tparallel // the subtests share one server and take milliseconds
func TestComparisonFindsEveryWrongAnswer(t *testing.T) {
	t.Parallel()
	s := startServer(t.Context(), t)
	api := s.newClient()
	options := map[importer.Kind]importer.CompareOptions{}
	for kind, text := range comparedFiles {
		options[kind] = mustImport(t, api, kind, text)
	}

	later := func(at *timestamppb.Timestamp) *timestamppb.Timestamp {
		return timestamppb.New(at.AsTime().Add(time.Microsecond))
	}

	for _, tt := range []struct {
		name   string
		kind   importer.Kind
		change func(answer any)
		want   string // a difference, without its end; empty for none
	}{
		{"right answers about follows", importer.Follows, func(any) {}, ""},
		{"right answers about boards", importer.Boards, func(any) {}, ""},
		{"another user in a list", importer.Follows, onAnswer(func(r *skeinv1.ListFollowingResponse) {
			for _, e := range r.GetEntries() {
				e.UserId = strings.Replace(e.GetUserId(), "cid", "cyd", 1)
			}
		}), "following of ann: cid is missing: the file has it, since 2024-01-02T00:00:00Z"},
		{"another time in a list", importer.Follows, onAnswer(func(r *skeinv1.ListFollowersResponse) {
			for _, e := range r.GetEntries() {
				e.FollowTime = later(e.GetFollowTime())
			}
		}), "followers of bob: ann has another time: the file has 2024-01-04T00:00:00Z, skein has 2024-01-04T00:00:00.000001Z"},
		{
			"another order of a list", importer.Follows, onAnswer(func(r *skeinv1.ListFollowingResponse) { slices.Reverse(r.GetEntries()) }),
			"following of ann: bob, since 2024-01-04T00:00:00Z, comes after cid, since 2024-01-02T00:00:00Z",
		},
		{"repeated entry of a list", importer.Follows, onAnswer(func(r *skeinv1.ListFollowingResponse) {
			if n := len(r.GetEntries()); n > 0 {
				r.Entries = append(r.GetEntries(), r.GetEntries()[n-1])
				r.TotalSize++
			}
		}), "following of ann: cid, since 2024-01-02T00:00:00Z, comes after cid, since 2024-01-02T00:00:00Z"},
		{
			"wrong total size", importer.Follows, onAnswer(func(r *skeinv1.ListFollowersResponse) { r.TotalSize++ }),
			"followers of ann: skein lists 0 and says that there are 1",
		},
		{"entry in a list that must be empty", importer.Follows, onAnswer(func(r *skeinv1.ListFollowersResponse) {
			if len(r.GetEntries()) == 0 {
				r.Entries = []*skeinv1.FollowEntry{{UserId: "eve", FollowTime: timestamppb.Now()}}
			}
		}), "followers of ann: eve is extra: the file does not have it"},
		{"wrong count of explicit follows", importer.Follows, onAnswer(func(r *skeinv1.BatchGetFollowCountsResponse) {
			r.GetUsers()[0].ExplicitFollowingCount++
		}), "counts of ann: skein lists 2 following and counts 3"},
		{"wrong count of all followers", importer.Follows, onAnswer(func(r *skeinv1.BatchGetFollowCountsResponse) {
			r.GetUsers()[0].FollowerCount++
		}), "counts of ann: skein lists 0 followers in all and counts 1"},
		{"wrong count of a list that is not in the file", importer.Follows, onAnswer(func(r *skeinv1.BatchGetFollowCountsResponse) {
			r.GetUsers()[0].MutedCount++
		}), "counts of ann: skein lists 0 muted and counts 1"},
		{"wrong count of excluded boards", importer.Follows, onAnswer(func(r *skeinv1.BatchGetFollowCountsResponse) {
			r.GetUsers()[0].ExcludedBoardCount++
		}), "counts of ann: skein lists 0 excluded boards and counts 1"},
		{"check that misses a follow", importer.Follows, onAnswer(func(r *skeinv1.CheckFollowsResponse) {
			for i := range r.GetKinds() {
				r.Kinds[i] = skeinv1.FollowKind_FOLLOW_KIND_NONE
			}
		}), "check ann → cid: FOLLOW_KIND_EXPLICIT is missing: the file has it, since 2024-01-02T00:00:00Z"},
		{"check that finds too much", importer.Follows, onAnswer(func(r *skeinv1.CheckFollowsResponse) {
			for i := range r.GetKinds() {
				r.Kinds[i] = skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
			}
		}), "check bob → ann: FOLLOW_KIND_EXPLICIT is extra: the file does not have it"},
		{"check with another time", importer.Follows, onAnswer(func(r *skeinv1.CheckFollowsResponse) {
			for _, e := range r.GetFollowTimes() {
				e.Time = later(e.GetTime())
			}
		}), "check ann → cid has another time"},
		{"another title", importer.Boards, onAnswer(func(r *skeinv1.ListBoardsResponse) {
			for _, e := range r.GetEntries() {
				e.Title = strings.ToUpper(e.GetTitle())
			}
		}), `boards of gus: board "bread" of gus: the file has "Bread", skein has "BREAD"`},
		{"title of a board that has none", importer.Boards, onAnswer(func(r *skeinv1.ListBoardsResponse) {
			for _, e := range r.GetEntries() {
				e.Title = e.GetBoard().GetBoardId()
			}
		}), `boards of gus: board "tea" of gus: the file has "", skein has "tea"`},
		{"another begin of a board", importer.Boards, onAnswer(func(r *skeinv1.ListBoardsResponse) {
			for _, e := range r.GetEntries() {
				e.Time = later(e.GetTime())
			}
		}), `board "bread" of gus has another time: the file has 2024-01-01T00:00:00Z`},
		{"missing followed board", importer.Boards, onAnswer(func(r *skeinv1.ListFollowedBoardsResponse) {
			r.Entries = nil
			r.TotalSize = 0
		}), `followed boards of hal: board "" of gus is missing`},
		{"another begin of following by boards", importer.Boards, onAnswer(func(r *skeinv1.ListFollowingResponse) {
			for _, e := range r.GetEntries() {
				e.FollowTime = later(e.GetFollowTime())
			}
		}), "following by boards of hal: gus has another time: the file has 2024-01-01T00:00:00Z"},
		{"follower of a board that has none", importer.Boards, onAnswer(func(r *skeinv1.ListBoardFollowersResponse) {
			if len(r.GetEntries()) == 0 {
				r.Entries = []*skeinv1.FollowEntry{{UserId: "eve", FollowTime: timestamppb.Now()}}
			}
		}), `followers of the board "empty" of gus: eve is extra`},
		{"wrong count of followers of a board", importer.Boards, onAnswer(func(r *skeinv1.BatchGetFollowCountsResponse) {
			for _, n := range r.GetBoards() {
				n.FollowerCount++
			}
		}), `counts of the board "tea" of gus: skein lists 1 followers and counts [1 2 0]`},
		{"check that misses a follow of a board", importer.Boards, onAnswer(func(r *skeinv1.CheckFollowsResponse) {
			for i := range r.GetKinds() {
				r.Kinds[i] = skeinv1.FollowKind_FOLLOW_KIND_NONE
			}
		}), `check ivy → board "tea" of gus: FOLLOW_KIND_BOARD is missing`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options[tt.kind]
			o.Graph = skeinv1connect.NewGraphServiceClient(http.DefaultClient, "http://"+s.addr, connect.WithInterceptors(changeAnswers(tt.change)))
			var differences []string
			o.Difference = func(text string) { differences = append(differences, text) }
			found, err := importer.Compare(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}

			if tt.want == "" {
				if found.Differences() != 0 || found.Entries == 0 || found.Pairs == 0 {
					t.Errorf("Compare: got %+v with the differences %q, want entries and pairs without differences", found, differences)
				}
				return
			}

			// Some cases leave out what was compared, which is the beginning of the difference.
			isWanted := func(difference string) bool {
				return strings.HasPrefix(difference, tt.want) || strings.Contains(difference, ": "+tt.want)
			}
			if !slices.ContainsFunc(differences, isWanted) {
				t.Errorf("Compare: got %+v with the differences %q, want %q among them", found, differences, tt.want)
			}
		})
	}
}
