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
		t.Run(direction.String(), func(t *testing.T) {
			res := ask(w, w.graph.FilterFollowed, &skeinv1.FilterFollowedRequest{
				ViewerId: "ann", UserIds: users, Direction: direction, AtLeast: at,
			})
			if diff := cmp.Diff(want, res.GetIndexes()); diff != "" {
				t.Errorf("indexes of %v (-want +got):\n%s", users, diff)
			}
		})
	}

	// The follow of eve includes the default board and created boards, but not the excluded board
	// dogs.
	t.Run("boards", func(t *testing.T) {
		res := ask(w, w.graph.FilterFollowed, &skeinv1.FilterFollowedRequest{ViewerId: "ann", AtLeast: at, Boards: []*skeinv1.Board{
			board("cid", "cats"), board("cid", "dogs"), board("eve", "dogs"), board("eve", ""), board("eve", "hens"),
			board("eve", "never"), board("nobody", ""),
		}})
		if diff := cmp.Diff([]uint32{0, 3, 4}, res.GetIndexes()); diff != "" {
			t.Errorf("indexes of boards (-want +got):\n%s", diff)
		}
	})
}

func TestFilterFollowedTakesAThousandUsers(t *testing.T) {
	w := newWorld(t)
	var follows []*skeinv1.Event
	var users []string
	var want []uint32
	for i := range 1000 {
		user := fmt.Sprint(i)
		users = append(users, user)
		if i%3 == 0 {
			follows = append(follows, follow("ann", user))
			want = append(want, uint32(i))
		}
	}
	at := w.publish(follows...)

	req := &skeinv1.FilterFollowedRequest{ViewerId: "ann", UserIds: users, AtLeast: at}
	if diff := cmp.Diff(want, ask(w, w.graph.FilterFollowed, req).GetIndexes()); diff != "" {
		t.Errorf("indexes of a thousand users (-want +got):\n%s", diff)
	}
	req.UserIds = append(req.GetUserIds(), "beyond")
	_, err := w.graph.FilterFollowed(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_ids")
}
