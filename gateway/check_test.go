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

// The hand-written checks of CheckFollows and FilterFollowed refuse exactly what the rules of their
// protos and the rules of ids refuse.
func TestHandChecksAgreeWithTheRules(t *testing.T) {
	r, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "a\x00", "é"})
	at := rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)})
	boards := rapid.Custom(func(t *rapid.T) *skeinv1.Board { return board(id.Draw(t, "owner"), id.Draw(t, "board")) })
	pair := rapid.Custom(func(t *rapid.T) *skeinv1.FollowPair {
		follower := id.Draw(t, "follower")
		switch rapid.IntRange(0, 3).Draw(t, "target") {
		case 0:
			return &skeinv1.FollowPair{UserId: follower}
		case 1:
			b := boards.Draw(t, "board")
			return boardPair(follower, b.GetOwnerId(), b.GetBoardId())
		}
		return userPair(follower, id.Draw(t, "user"))
	})
	badIDs := func(ids ...string) bool {
		for _, id := range ids {
			if id != "" && events.ValidateID(id) != nil {
				return true
			}
		}
		return false
	}
	badBoards := func(bs []*skeinv1.Board) bool {
		for _, b := range bs {
			if badIDs(b.GetOwnerId(), b.GetBoardId()) {
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.CheckFollowsRequest{Pairs: rapid.SliceOfN(pair, 0, 4).Draw(t, "pairs"), AtLeast: at.Draw(t, "at")}
		bad := len(r.Check(req)) > 0
		for _, p := range req.GetPairs() {
			bad = bad || badIDs(p.GetUserId(), p.GetTargetUserId()) ||
				p.GetBoard() != nil && badBoards([]*skeinv1.Board{p.GetBoard()})
		}
		if got := graphservice.ValidateCheckFollows(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.FilterFollowedRequest{
			ViewerId: id.Draw(t, "viewer"), AtLeast: at.Draw(t, "at"),
			Direction: skeinv1.FollowDirection(rapid.Int32Range(-1, 5).Draw(t, "direction")),
		}
		if rapid.Bool().Draw(t, "users") {
			req.UserIds = rapid.SliceOfN(id, 0, 3).Draw(t, "ids")
		}
		if rapid.Bool().Draw(t, "of boards") {
			req.Boards = rapid.SliceOfN(boards, 0, 3).Draw(t, "boards")
		}
		bad := len(r.Check(req)) > 0 || badIDs(append(req.GetUserIds(), req.GetViewerId())...) || badBoards(req.GetBoards()) ||
			(len(req.GetUserIds()) == 0) == (len(req.GetBoards()) == 0) ||
			len(req.GetBoards()) > 0 && req.GetDirection() > skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING
		if got := graphservice.ValidateFilterFollowed(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
	for n, bad := range map[int]bool{0: true, 1: false, 1000: false, 1001: true} {
		check, filter := &skeinv1.CheckFollowsRequest{}, &skeinv1.FilterFollowedRequest{ViewerId: "v"}
		for i := range n {
			check.Pairs = append(check.Pairs, userPair("a", fmt.Sprint(i)))
			filter.UserIds = append(filter.UserIds, fmt.Sprint(i))
		}
		for req, got := range map[proto.Message][]apierror.Violation{check: graphservice.ValidateCheckFollows(check), filter: graphservice.ValidateFilterFollowed(filter)} {
			if (len(got) > 0) != bad {
				t.Errorf("%d items: %v by hand: %v", n, got, req.ProtoReflect().Descriptor().Name())
			}
			if (len(r.Check(req)) > 0) != bad && n > 0 {
				t.Errorf("%d items: by the rules: %v", n, req.ProtoReflect().Descriptor().Name())
			}
		}
	}
}

// A nil board in a list, which only a program in the same process can send, is refused and does not
// cause a panic.
func TestNilBoardIsRefused(t *testing.T) {
	if got := graphservice.ValidateFilterFollowed(&skeinv1.FilterFollowedRequest{ViewerId: "v", Boards: []*skeinv1.Board{nil}}); len(got) != 1 {
		t.Error(got)
	}
}
