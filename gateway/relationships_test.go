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
	got := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
		ViewerId: "ann", UserIds: []string{"bob", "cid", "dan", "eve", "nobody"}, AtLeast: at,
	}).GetRelationships()

	const none = skeinv1.FollowKind_FOLLOW_KIND_NONE
	want := []*skeinv1.Relationship{
		{UserId: "bob", Following: explicit, FollowedBy: implicit, Muting: true, Settings: &skeinv1.FollowSettings{HideRepins: true}},
		{UserId: "cid", Following: none, FollowedBy: none, Blocking: true},
		{UserId: "dan", Following: none, FollowedBy: none, BlockedBy: true},
		{UserId: "eve", Following: implicit, FollowedBy: none},
		{UserId: "nobody", Following: none, FollowedBy: none},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&skeinv1.Relationship{}, "follow_time")); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
	for _, r := range got {
		if (r.GetFollowTime() != nil) != (r.GetFollowing() != none) {
			t.Errorf("%s: got follow time %v, want one exactly if the viewer follows the user", r.GetUserId(), r.GetFollowTime())
		}
	}
}
