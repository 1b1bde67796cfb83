package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func withID(ev *skeinv1.Event, id string) *skeinv1.Event {
	ev.EventId = id
	return ev
}

func backfill(ev *skeinv1.Event, offset uint64) *skeinv1.Event {
	ev.Source, ev.Offset, ev.OccurredAt = "old", offset, timestamppb.New(time.Unix(1e9, 0))
	return ev
}

func TestPublish(t *testing.T) {
	w := newWorld(t)
	res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{withID(follow("ann", "bob"), "e1"), follow("ann", "cid")},
		Wait:   skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if res.GetAcceptedCount() != 2 || res.GetPosition() == "" || len(res.GetRejections()) != 0 {
		t.Error(res)
	}
	if ids := res.GetEventIds(); len(ids) != 2 || ids[0] != "e1" || ids[1] == "" {
		t.Error(ids)
	}
	// VISIBLE: shown without asking for the position.
	c := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "cid")}})
	if c.GetKinds()[0] != explicit || c.GetPosition() != res.GetPosition() {
		t.Error(c)
	}
}

// TestPublishWithoutRoom: while there is no room nothing is taken, reads continue, and so does
// Publish when there is room again.
func TestPublishWithoutRoom(t *testing.T) {
	var none atomic.Bool
	w := newWorld(t, func(o *worldOptions) {
		o.CheckDisk = func() error {
			if none.Load() {
				return fmt.Errorf("%w: 3 KiB are free", apierror.ErrDiskFull)
			}
			return nil
		}
	})
	last := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}}).GetPosition()
	none.Store(true)
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "cid")}, AllowPartial: true,
	}))
	if d := detailsOf(t, err); d.code != connect.CodeResourceExhausted || d.reason != "DISK_FULL" || !d.retry ||
		strings.Contains(err.Error(), "KiB") {
		t.Errorf("%v: %+v", err, d)
	}
	pairs := []*skeinv1.FollowPair{userPair("ann", "bob"), userPair("ann", "cid")}
	c := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: last})
	if c.GetKinds()[0] != explicit || c.GetKinds()[1] == explicit || c.GetPosition() != last {
		t.Error(c)
	}
	none.Store(false)
	ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "cid")}})
}

// One bad event refuses the whole call, and the error names what is wrong with each.
func TestPublishAllOrNothing(t *testing.T) {
	w := newWorld(t)
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("ann", "bob"), follow("ann", "ann"), {}, follow("ann", "b c"), createBoard("ann", "", ""),
	}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[1].user_followed.target_user_id")
	var got []string
	for _, f := range detailsOf(t, err).fields {
		got = append(got, f.GetField()+" "+f.GetReason())
		if strings.HasPrefix(f.GetDescription(), f.GetField()) || f.GetDescription() == "" {
			t.Errorf("description %q", f.GetDescription())
		}
	}
	if diff := cmp.Diff([]string{
		"events[1].user_followed.target_user_id SELF_RELATION", "events[2].kind UNKNOWN_KIND",
		"events[3].user_followed.target_user_id INVALID_FIELD", "events[4].board_created.board.board_id INVALID_FIELD",
	}, got); diff != "" {
		t.Error(diff)
	}
	res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}})
	if res.GetKinds()[0] != skeinv1.FollowKind_FOLLOW_KIND_NONE || res.GetPosition() != w.log.Position(0).String() {
		t.Error("something was taken: ", res)
	}
}

func TestPublishInPart(t *testing.T) {
	w := newWorld(t)
	res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{
			follow("ann", "ann"), withID(follow("ann", "bob"), "e1"), {EventId: "e2"}, follow("ann", "cid"),
		},
		AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if res.GetAcceptedCount() != 2 || res.GetPosition() == "" {
		t.Error(res)
	}
	ids := res.GetEventIds()
	if len(ids) != 4 || ids[0] != "" || ids[1] != "e1" || ids[2] != "" || ids[3] == "" {
		t.Error(ids)
	}
	var got []string
	for _, r := range res.GetRejections() {
		got = append(got, fmt.Sprintf("%d %v %s", r.GetIndex(), r.GetReason(), r.GetField()))
		if r.GetMessage() == "" {
			t.Error("a rejection without a message")
		}
	}
	if diff := cmp.Diff([]string{"0 REASON_SELF_RELATION user_followed.target_user_id", "2 REASON_UNKNOWN_KIND kind"}, got); diff != "" {
		t.Error(diff)
	}
	res = ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{{}}, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if res.GetAcceptedCount() != 0 || res.GetPosition() != "" || len(res.GetRejections()) != 1 || len(res.GetEventIds()) != 1 {
		t.Error(res)
	}
}

func TestPublishThatIsTooLarge(t *testing.T) {
	w := newWorld(t)
	pin := func(bytes int) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: "ann", PinId: strings.Repeat("p", 128)}, BoardId: strings.Repeat("b", 128),
			ItemId: strings.Repeat("i", 128), RepinOf: &skeinv1.Pin{OwnerId: strings.Repeat("o", 128), PinId: strings.Repeat("r", 128)},
			Attributes: make([]byte, bytes),
		}}}
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: slices.Repeat([]*skeinv1.Event{pin(256)}, 1000)}))
	wantError(t, err, connect.CodeInvalidArgument, "TOO_LARGE", "events")
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: slices.Repeat([]*skeinv1.Event{follow("a", "b")}, 1001)}))
	wantError(t, err, connect.CodeInvalidArgument, "TOO_LARGE", "events")
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "events")
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "b")}, Wait: 7}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "wait")
	// What is just small enough, in the largest way to write it, goes through.
	w.connect(connect.WithProtoJSON())
	if at := w.publish(slices.Repeat([]*skeinv1.Event{pin(100)}, 980)...); at == "" {
		t.Error("no position")
	}
}

// What is in the log but not shown in time is no failure to publish: the error says where the
// events are.
func TestPublishVisibleInTime(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.VisibleWait = time.Millisecond })
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	wantError(t, err, connect.CodeDeadlineExceeded, "NOT_CAUGHT_UP", "")
	at := detailsOf(t, err).info.GetMetadata()["position"]
	if at != w.log.Position(1).String() {
		t.Errorf("position %q", at)
	}
	w.fold()
	res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at})
	if res.GetKinds()[0] != explicit {
		t.Error(res)
	}
}

// When the log is closed, nothing is taken and the code says so.
func TestPublishToAClosedLog(t *testing.T) {
	w := newWorld(t)
	if err := w.publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "b")}}))
	wantError(t, err, connect.CodeUnavailable, "LOG_UNAVAILABLE", "")
}

// An event id that a call has twice is refused by name, and so is the whole call. In part, the
// first of them is taken.
func TestPublishRepeatsInACall(t *testing.T) {
	w := newWorld(t)
	evs := []*skeinv1.Event{
		withID(follow("ann", "bob"), "r"), withID(follow("cid", "bob"), "r"), withID(follow("ann", "dee"), "r"), follow("ann", "eve"),
		follow("ann", "eve"), withID(unfollow("ann", "bob"), "r"), withID(follow("ann", "bob"), "r"),
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
	wantError(t, err, connect.CodeInvalidArgument, "EVENT_ID_REUSED", "events[2].event_id")
	res, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: evs, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range res.Msg.GetRejections() {
		got = append(got, fmt.Sprint(r.GetIndex(), " ", r.GetReason(), " ", r.GetField()))
	}
	if diff := cmp.Diff([]string{"2 REASON_EVENT_ID_REUSED event_id", "6 REASON_EVENT_ID_REUSED event_id"}, got); diff != "" || res.Msg.GetAcceptedCount() != 5 {
		t.Errorf("%d accepted, %s", res.Msg.GetAcceptedCount(), diff)
	}
}

// I6: with VISIBLE the answer names the events that the log had already, and refuses those whose id
// it had for other content.
func TestPublishNamesRepeats(t *testing.T) {
	named := func(id, user, followed string) *skeinv1.Event { return withID(follow(user, followed), id) }
	type call struct {
		name     string
		evs      []*skeinv1.Event
		wait     skeinv1.PublishWait
		partial  bool
		accepted int32
		repeats  []int32
		refused  string
		unknown  bool
	}
	const visible = skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE
	two := []*skeinv1.Event{named("1", "ann", "bob"), named("2", "ann", "cid")}
	again := []*skeinv1.Event{named("1", "ann", "bob"), named("2", "ann", "yan")}
	dir := t.TempDir()
	for _, part := range []struct {
		name  string
		calls []call
	}{
		{"first", []call{
			{name: "new", evs: two, wait: visible, accepted: 2},
			{name: "again", evs: two, wait: visible, accepted: 2, repeats: []int32{0, 1}},
			{name: "another user", evs: []*skeinv1.Event{named("1", "bob", "cid")}, wait: visible, accepted: 1},
			{name: "some of it", evs: []*skeinv1.Event{
				follow("ann", "dee"), named("1", "ann", "eve"), named("2", "ann", "cid"),
			}, wait: visible, accepted: 2, repeats: []int32{2}, refused: "1 REASON_EVENT_ID_REUSED"},
			{name: "in part", evs: []*skeinv1.Event{
				named("1", "ann", "fay"), follow("ann", "ann"), named("3", "ann", "gil"), named("2", "ann", "cid"),
			}, wait: visible, partial: true, accepted: 2, repeats: []int32{3}, refused: "0 REASON_EVENT_ID_REUSED, 1 REASON_SELF_RELATION"},
			{name: "nothing but", evs: []*skeinv1.Event{named("2", "ann", "zoe")}, wait: visible, refused: "0 REASON_EVENT_ID_REUSED"},
			{name: "not waited for", evs: two, accepted: 2, unknown: true},
		}},
		{"after a restart", []call{
			{name: "reused", evs: again, wait: visible, accepted: 1, repeats: []int32{0}, refused: "1 REASON_EVENT_ID_REUSED"},
			{name: "refused before", evs: again, wait: visible, accepted: 2, repeats: []int32{0, 1}},
		}},
	} {
		t.Run(part.name, func(t *testing.T) {
			w := newWorld(t, func(o *worldOptions) { o.logConfig = eventlog.Config{Dir: dir, MaxBytes: 1 << 30} })
			var at string
			for _, c := range part.calls {
				res := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: c.evs, Wait: c.wait, AllowPartial: c.partial})
				var refused []string
				for _, r := range res.GetRejections() {
					refused = append(refused, fmt.Sprint(r.GetIndex(), " ", r.GetReason()))
					if res.GetEventIds()[r.GetIndex()] != "" || r.GetMessage() == "" {
						t.Errorf("%s: event ids %q, %q", c.name, res.GetEventIds(), r.GetMessage())
					}
				}
				if at = res.GetPosition(); at == "" || res.GetAcceptedCount() != c.accepted || res.GetRepeatsKnown() == c.unknown ||
					!slices.Equal(res.GetRepeatedIndexes(), c.repeats) || strings.Join(refused, ", ") != c.refused {
					t.Errorf("%s: %v", c.name, res)
				}
			}
			var follows string
			for _, user := range []string{"bob", "cid", "dee", "eve", "fay", "gil", "yan", "zoe"} {
				pairs := []*skeinv1.FollowPair{userPair("ann", user)}
				if ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: at}).GetKinds()[0] == explicit {
					follows += user + " "
				}
			}
			if follows != "bob cid dee gil " {
				t.Error("ann follows ", follows)
			}
			// What is not in memory is not guessed at.
			res := &skeinv1.PublishResponse{AcceptedCount: 1, EventIds: []string{"1"}}
			w.server.events.FillRepeats(eventlog.Result{Position: w.log.Position(1000)}, []int{0}, res)
			if res.GetRepeatsKnown() || res.GetAcceptedCount() != 1 {
				t.Error(res)
			}
		})
	}
}

// TestPublishRefusesBackfillsThatCannotCount: backfills of a closed source, of deleted users, and
// with the offset of another of the call are refused. Backfills at or below the highest offset of
// their source and kind are named as repeats, whether the call waits or not.
func TestPublishRefusesBackfillsThatCannotCount(t *testing.T) {
	const visible = skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE
	closed := func(source string) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: source}}}
	}
	from := func(source string, offset uint64, ev *skeinv1.Event) *skeinv1.Event {
		ev = backfill(ev, offset)
		ev.Source = source
		return ev
	}
	like := func() *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: "ann", ItemId: "i"}}}
	}
	served := func() *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: "ann", ItemIds: []string{"i"}}}}
	}

	w := newWorld(t, withSeen, withCounters)
	for _, c := range []struct {
		name     string
		events   []*skeinv1.Event
		wait     skeinv1.PublishWait
		accepted int32
		repeats  []int32
		refused  []string
	}{
		{
			name: "an import", wait: visible, accepted: 4,
			events: []*skeinv1.Event{
				from("old", 5, follow("ann", "bob")), from("old", 5, like()), from("old", 5, served()), from("gone", 1, follow("ann", "bob")),
			},
		},
		{
			name: "another with its source", accepted: 5, repeats: []int32{0, 1, 2},
			events: []*skeinv1.Event{
				from("old", 1, follow("ann", "cid")), from("old", 5, like()), from("old", 2, served()), from("other", 1, follow("ann", "cid")),
				from("old", 6, follow("ann", "dan")),
			},
		},
		{
			name: "the same, waited for", wait: visible, accepted: 1, repeats: []int32{0},
			events: []*skeinv1.Event{from("old", 1, follow("ann", "cid"))},
		},
		{
			name: "one offset twice", accepted: 1,
			events:  []*skeinv1.Event{from("old", 7, follow("ann", "eve")), from("old", 7, follow("ann", "fay"))},
			refused: []string{"1 REASON_INVALID_BACKFILL offset is 7: it must be above 7, the offset of events[0] of the same source and kind"},
		},
		{name: "a deletion and the end of a source", wait: visible, accepted: 2, events: []*skeinv1.Event{deletedUser("dan"), closed("gone")}},
		{
			name: "after them", accepted: 2,
			events: []*skeinv1.Event{
				from("old", 8, follow("ann", "dan")), from("gone", 9, like()), from("other", 2, follow("ann", "eve")), follow("ann", "dan"),
			},
			refused: []string{
				`0 REASON_INVALID_BACKFILL user_followed is a backfill about "dan", who was deleted: only live events about a deleted user count`,
				`1 REASON_INVALID_BACKFILL source "gone" is closed: a backfill_closed ended its backfills, or all, and only live events count since`,
			},
		},
		{name: "the end of all", wait: visible, accepted: 1, events: []*skeinv1.Event{closed("")}},
		{
			name: "after it", accepted: 0,
			events:  []*skeinv1.Event{from("new", 1, follow("ann", "eve"))},
			refused: []string{`0 REASON_INVALID_BACKFILL source "new" is closed: a backfill_closed ended its backfills, or all, and only live events count since`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: c.events, Wait: c.wait, AllowPartial: true})
			var refused []string
			for _, r := range res.GetRejections() {
				refused = append(refused, fmt.Sprint(r.GetIndex(), " ", r.GetReason(), " ", r.GetMessage()))
			}
			if diff := cmp.Diff(c.refused, refused); diff != "" {
				t.Errorf("refusals (-expected +got):\n%s", diff)
			}
			if res.GetAcceptedCount() != c.accepted || !slices.Equal(res.GetRepeatedIndexes(), c.repeats) {
				t.Errorf("accepted %d, repeats %v, expected %d, %v", res.GetAcceptedCount(), res.GetRepeatedIndexes(), c.accepted, c.repeats)
			}
		})
	}

	// Without allow_partial the call is refused, and names the field.
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "gil"), from("new", 1, follow("ann", "eve"))},
	}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_BACKFILL", "events[1].source")
}
