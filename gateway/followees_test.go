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

	// checkRefused publishes events, and checks the indexes of those that are over the limit.
	checkRefused := func(name string, want []int32, evs ...*skeinv1.Event) {
		t.Helper()
		var refused []int32
		res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
			Events: evs, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		})
		for _, r := range res.GetRejections() {
			if r.GetReason() != skeinv1.Reason_REASON_FOLLOWEE_LIMIT {
				t.Errorf("%s: got the rejection %v, want only the reason FOLLOWEE_LIMIT", name, r)
			}
			refused = append(refused, r.GetIndex())
		}
		if diff := cmp.Diff(want, refused); diff != "" {
			t.Errorf("%s: indexes of refused events (-want +got):\n%s", name, diff)
		}
	}

	// Each step begins with the follows that the steps before it have left.
	checkRefused("follows within one call count", []int32{3, 5},
		follow("ann", "a"), followBoard("ann", "b", "x"), follow("ann", "c"), follow("ann", "d"), follow("ann", "a"),
		followBoard("ann", "e", ""), followBoard("ann", "b", "y"), follow("ann", "b"),
	)
	checkRefused("follows of earlier calls count", []int32{0}, follow("ann", "d"))
	checkRefused("repeated follows do not count", nil, follow("ann", "a"), followBoard("ann", "a", "z"), follow("ann", "c"))
	checkRefused("an unfollow allows another follow", []int32{2}, unfollow("ann", "a"), follow("ann", "d"), follow("ann", "e"))
	checkRefused("a block allows another follow", []int32{2}, block("ann", "d"), follow("ann", "e"), follow("ann", "f"))
	checkRefused("an unfollow without a follow allows none", []int32{1}, unfollow("ann", "nobody"), follow("ann", "f"))
	checkRefused("each follower has a limit of their own", nil, follow("bob", "1"), follow("cid", "1"), follow("bob", "2"), follow("bob", "3"))
	checkRefused("history is not limited", nil, backfill(follow("ann", "g"), 1), backfill(follow("ann", "h"), 2))
	checkRefused("followers are not limited", nil, follow("1", "ann"), follow("2", "ann"), follow("3", "ann"), follow("4", "ann"))

	// A call that must be accepted whole fails, and names the event. An invalid event comes first.
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("bob", "3"), follow("bob", "4"),
	}}))
	wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[1].user_followed")
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("bob", "4"), follow("bob", "bob"),
	}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[1].user_followed.target_user_id")
}

// TestFolloweeLimitIsExactForSingleFollows checks that the cache of the followee cap does not
// change the limit for follows that come one by one.
func TestFolloweeLimitIsExactForSingleFollows(t *testing.T) {
	const limit = 20
	w := newWorld(t, func(o *worldOptions) { o.Limits.Followees = limit })
	for i := range limit + 2 {
		_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{follow("ann", fmt.Sprint(i))}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		}))
		if i < limit && err != nil {
			t.Fatalf("follow %d: got error %v, want none below the limit of %d", i, err, limit)
		}
		if i >= limit {
			wantError(t, err, connect.CodeFailedPrecondition, "FOLLOWEE_LIMIT", "events[0].user_followed")
		}
	}
}

// TestNegativeFolloweeLimitDisablesIt checks that a follower may follow more users than the default
// limit of 10,000 allows if the limit is negative.
func TestNegativeFolloweeLimitDisablesIt(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Followees = -1 })
	for n := range 11 {
		var evs []*skeinv1.Event
		for i := range 1000 {
			evs = append(evs, follow("ann", fmt.Sprint(1000*n+i)))
		}
		w.publish(evs...)
	}
}
