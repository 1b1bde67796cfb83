package gateway

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestFolloweeLimit(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Followees = 3 })
	// try publishes in part and returns the indexes of the refused events.
	try := func(evs ...*skeinv1.Event) (refused []int32) {
		t.Helper()
		res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
			Events: evs, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		})
		for _, r := range res.GetRejections() {
			if r.GetReason() != skeinv1.Reason_REASON_FOLLOWEE_LIMIT {
				t.Errorf("refused for another reason: %v", r)
			}
			refused = append(refused, r.GetIndex())
		}
		return refused
	}
	want := func(name string, want, got []int32) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	want("of one call", []int32{3, 5}, try(
		follow("ann", "a"), followBoard("ann", "b", "x"), follow("ann", "c"), follow("ann", "d"), follow("ann", "a"),
		followBoard("ann", "e", ""), followBoard("ann", "b", "y"), follow("ann", "b"),
	))
	want("of the graph", []int32{0}, try(follow("ann", "d")))
	want("repeats of what holds", nil, try(follow("ann", "a"), followBoard("ann", "a", "z"), follow("ann", "c")))
	want("an end makes room", []int32{2}, try(unfollow("ann", "a"), follow("ann", "d"), follow("ann", "e")))
	want("a block makes room", []int32{2}, try(block("ann", "d"), follow("ann", "e"), follow("ann", "f")))
	want("the end of nothing does not", []int32{1}, try(unfollow("ann", "nobody"), follow("ann", "f")))
	want("each follower has its own", nil, try(follow("bob", "1"), follow("cid", "1"), follow("bob", "2"), follow("bob", "3")))
	want("history is not bounded", nil, try(backfill(follow("ann", "g"), 1), backfill(follow("ann", "h"), 2)))
	want("being followed is not bounded", nil, try(follow("1", "ann"), follow("2", "ann"), follow("3", "ann"), follow("4", "ann")))

	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("bob", "3"), follow("bob", "4"),
	}}))
	wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[1].user_followed")
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("bob", "4"), follow("bob", "bob"),
	}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[1].user_followed.target_user_id")
}

// The cache of the followee cap does not change the limit for follows that come one by one.
func TestFolloweeLimitIsExactForSingleFollows(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Followees = 20 })
	for i := range 22 {
		_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{follow("ann", fmt.Sprint(i))}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		}))
		if i < 20 && err != nil {
			t.Fatalf("follow %d: %v", i, err)
		}
		if i >= 20 {
			wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[0].user_followed")
		}
	}
}

func TestNoFolloweeLimit(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Followees = -1 })
	for n := range 11 {
		var evs []*skeinv1.Event
		for i := range 1000 {
			evs = append(evs, follow("ann", fmt.Sprint(1000*n+i)))
		}
		w.publish(evs...)
	}
}
