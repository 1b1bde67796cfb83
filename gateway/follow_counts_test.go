package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestBatchGetFollowCounts(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		createBoard("bob", "cats", ""), createBoard("bob", "dogs", ""),
		follow("ann", "bob"), unfollowBoard("ann", "bob", "dogs"), followBoard("cid", "bob", "cats"),
		follow("dan", "bob"), followBoard("dan", "bob", "cats"), followBoard("ann", "eve", ""),
		block("ann", "zed"), mute("ann", "bob"),
	)

	res := ask(w, w.graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{
		UserIds: []string{"ann", "bob", "nobody"},
		Boards:  []*skeinv1.Board{board("bob", "cats"), board("bob", "dogs"), board("bob", ""), board("bob", "hens")},
		AtLeast: at,
	})
	want := &skeinv1.BatchGetFollowCountsResponse{
		Users: []*skeinv1.UserFollowCounts{
			{
				UserId: "ann", FollowingCount: 2, ExplicitFollowingCount: 1, ImplicitFollowingCount: 1,
				FollowedBoardCount: 1, ExcludedBoardCount: 1, BlockedCount: 1, MutedCount: 1,
			},
			{UserId: "bob", FollowerCount: 3, ExplicitFollowerCount: 2, ImplicitFollowerCount: 1, BoardCount: 2},
			{UserId: "nobody"},
		},
		Boards: []*skeinv1.BoardFollowCounts{
			{Board: board("bob", "cats"), FollowerCount: 3, ExplicitFollowerCount: 2},
			{Board: board("bob", "dogs"), FollowerCount: 1, ExcluderCount: 1},
			{Board: board("bob", ""), FollowerCount: 2},
			{Board: board("bob", "hens")},
		},
		Position: at,
	}
	if diff := cmp.Diff(want, res, protocmp.Transform()); diff != "" {
		t.Errorf("BatchGetFollowCounts (-want +got):\n%s", diff)
	}
}
