package gateway

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// hasInvalidID reports whether one of the ids is not valid. Whether an id may be empty is a rule of
// the proto.
func hasInvalidID(ids ...string) bool {
	for _, id := range ids {
		if id != "" && events.ValidateID(id) != nil {
			return true
		}
	}
	return false
}

// hasInvalidBoardID reports whether one of the boards has an id that is not valid.
func hasInvalidBoardID(boards ...*skeinv1.Board) bool {
	for _, b := range boards {
		if hasInvalidID(b.GetOwnerId(), b.GetBoardId()) {
			return true
		}
	}
	return false
}

// TestHandChecksAgreeWithTheRules checks that the hand-written checks of CheckFollows and
// FilterFollowed refuse exactly what the rules of their protos and the rules of ids refuse.
func TestHandChecksAgreeWithTheRules(t *testing.T) {
	rules, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	ids := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "a\x00", "é"})
	positions := rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)})
	boards := rapid.Custom(func(t *rapid.T) *skeinv1.Board { return board(ids.Draw(t, "owner"), ids.Draw(t, "board")) })
	pairs := rapid.Custom(func(t *rapid.T) *skeinv1.FollowPair {
		follower := ids.Draw(t, "follower")
		switch rapid.IntRange(0, 3).Draw(t, "target") {
		case 0:
			return &skeinv1.FollowPair{UserId: follower}
		case 1:
			b := boards.Draw(t, "board")
			return boardPair(follower, b.GetOwnerId(), b.GetBoardId())
		default:
			return userPair(follower, ids.Draw(t, "user"))
		}
	})

	t.Run("CheckFollows", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			req := &skeinv1.CheckFollowsRequest{Pairs: rapid.SliceOfN(pairs, 0, 4).Draw(t, "pairs"), AtLeast: positions.Draw(t, "at")}
			wantRefusal := len(rules.Check(req)) > 0
			for _, p := range req.GetPairs() {
				if hasInvalidID(p.GetUserId(), p.GetTargetUserId()) || hasInvalidBoardID(p.GetBoard()) {
					wantRefusal = true
				}
			}
			if got := graphservice.ValidateCheckFollows(req); (len(got) > 0) != wantRefusal {
				t.Fatalf("%v: got the violations %v, want some: %v", req, got, wantRefusal)
			}
		})
	})

	t.Run("FilterFollowed", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			req := &skeinv1.FilterFollowedRequest{
				ViewerId: ids.Draw(t, "viewer"), AtLeast: positions.Draw(t, "at"),
				Direction: skeinv1.FollowDirection(rapid.Int32Range(-1, 5).Draw(t, "direction")),
			}
			if rapid.Bool().Draw(t, "users") {
				req.UserIds = rapid.SliceOfN(ids, 0, 3).Draw(t, "ids")
			}
			if rapid.Bool().Draw(t, "of boards") {
				req.Boards = rapid.SliceOfN(boards, 0, 3).Draw(t, "boards")
			}

			// A request must have either users or boards, and boards follow nobody.
			hasUsers := len(req.GetUserIds()) > 0
			hasBoards := len(req.GetBoards()) > 0
			wantRefusal := len(rules.Check(req)) > 0 ||
				hasInvalidID(req.GetViewerId()) || hasInvalidID(req.GetUserIds()...) || hasInvalidBoardID(req.GetBoards()...) ||
				hasUsers == hasBoards ||
				hasBoards && req.GetDirection() > skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING
			if got := graphservice.ValidateFilterFollowed(req); (len(got) > 0) != wantRefusal {
				t.Fatalf("%v: got the violations %v, want some: %v", req, got, wantRefusal)
			}
		})
	})

	for n, wantRefusal := range map[int]bool{0: true, 1: false, 1000: false, 1001: true} {
		t.Run(fmt.Sprint(n, " items"), func(t *testing.T) {
			check := &skeinv1.CheckFollowsRequest{}
			filter := &skeinv1.FilterFollowedRequest{ViewerId: "v"}
			for i := range n {
				check.Pairs = append(check.Pairs, userPair("a", fmt.Sprint(i)))
				filter.UserIds = append(filter.UserIds, fmt.Sprint(i))
			}
			for req, got := range map[proto.Message][]apierror.Violation{
				check:  graphservice.ValidateCheckFollows(check),
				filter: graphservice.ValidateFilterFollowed(filter),
			} {
				name := req.ProtoReflect().Descriptor().Name()
				if (len(got) > 0) != wantRefusal {
					t.Errorf("%s: got the violations %v by hand, want some: %v", name, got, wantRefusal)
				}
				// The rules of FilterFollowed allow no users, because a request can have boards
				// instead.
				if byRules := rules.Check(req); n > 0 && (len(byRules) > 0) != wantRefusal {
					t.Errorf("%s: got the violations %v by the rules, want some: %v", name, byRules, wantRefusal)
				}
			}
		})
	}
}

// TestNilBoardIsRefused checks that a nil board in a list is refused and does not cause a panic.
// Only a program in the same process can send one.
func TestNilBoardIsRefused(t *testing.T) {
	req := &skeinv1.FilterFollowedRequest{ViewerId: "v", Boards: []*skeinv1.Board{nil}}
	if got := graphservice.ValidateFilterFollowed(req); len(got) != 1 {
		t.Errorf("got the violations %v, want one", got)
	}
}
