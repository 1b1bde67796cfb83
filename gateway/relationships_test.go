package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestBatchGetRelationships(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		follow("ann", "bob"), followBoard("bob", "ann", "cats"), block("ann", "cid"), block("dan", "ann"),
		mute("ann", "bob"), hideRepins("ann", "bob"), followBoard("ann", "eve", "dogs"),
	)
	res := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
		ViewerId: "ann", UserIds: []string{"bob", "cid", "dan", "eve", "nobody"}, AtLeast: at,
	})
	none, explicit, implicit := skeinv1.FollowKind_FOLLOW_KIND_NONE, skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT,
		skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT
	want := []*skeinv1.Relationship{
		{UserId: "bob", Following: explicit, FollowedBy: implicit, Muting: true, Settings: &skeinv1.FollowSettings{HideRepins: true}},
		{UserId: "cid", Following: none, FollowedBy: none, Blocking: true},
		{UserId: "dan", Following: none, FollowedBy: none, BlockedBy: true},
		{UserId: "eve", Following: implicit, FollowedBy: none},
		{UserId: "nobody", Following: none, FollowedBy: none},
	}
	for i, r := range res.GetRelationships() {
		if (r.GetFollowTime() != nil) != (r.GetFollowing() != none) {
			t.Errorf("%s: follow time %v", r.GetUserId(), r.GetFollowTime())
		}
		r.FollowTime = nil
		if diff := cmp.Diff(want[i], r, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	if len(res.GetRelationships()) != len(want) {
		t.Error(res)
	}
}
