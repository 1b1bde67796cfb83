package gateway

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestFilterFollowed(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		follow("ann", "bob"), follow("bob", "ann"), followBoard("ann", "cid", "cats"), follow("dan", "ann"),
		follow("ann", "eve"), unfollowBoard("ann", "eve", "dogs"), createBoard("eve", "hens", ""),
	)
	users := []string{"bob", "cid", "dan", "eve", "nobody", "bob", "ann"}
	for direction, want := range map[skeinv1.FollowDirection][]uint32{
		skeinv1.FollowDirection_FOLLOW_DIRECTION_UNSPECIFIED: {0, 1, 3, 5},
		skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING:   {0, 1, 3, 5},
		skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY: {0, 2, 5},
		skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:      {0, 5},
	} {
		res := ask(w, w.graph.FilterFollowed, &skeinv1.FilterFollowedRequest{
			ViewerId: "ann", UserIds: users, Direction: direction, AtLeast: at,
		})
		if diff := cmp.Diff(want, res.GetIndexes()); diff != "" {
			t.Errorf("%v: %s", direction, diff)
		}
	}
	res := ask(w, w.graph.FilterFollowed, &skeinv1.FilterFollowedRequest{ViewerId: "ann", Boards: []*skeinv1.Board{
		board("cid", "cats"), board("cid", "dogs"), board("eve", "dogs"), board("eve", ""), board("eve", "hens"),
		board("eve", "never made"[:5]), board("nobody", ""),
	}})
	if diff := cmp.Diff([]uint32{0, 3, 4}, res.GetIndexes()); diff != "" {
		t.Error("boards: ", diff)
	}
}

func TestFilterFollowedOfAThousand(t *testing.T) {
	w := newWorld(t)
	var evs []*skeinv1.Event
	var users []string
	var want []uint32
	for i := range 1000 {
		users = append(users, fmt.Sprint(i))
		if i%3 == 0 {
			evs, want = append(evs, follow("ann", fmt.Sprint(i))), append(want, uint32(i))
		}
	}
	at := w.publish(evs...)
	req := &skeinv1.FilterFollowedRequest{ViewerId: "ann", UserIds: users, AtLeast: at}
	if diff := cmp.Diff(want, ask(w, w.graph.FilterFollowed, req).GetIndexes()); diff != "" {
		t.Error(diff)
	}
	req.UserIds = append(req.GetUserIds(), "one too many")
	_, err := w.graph.FilterFollowed(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_ids")
}
