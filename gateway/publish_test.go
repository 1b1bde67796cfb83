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

// backfill makes an event one of a history that is imported from the source "old".
func backfill(ev *skeinv1.Event, offset uint64) *skeinv1.Event {
	ev.Source = "old"
	ev.Offset = offset
	ev.OccurredAt = timestamppb.New(time.Unix(1e9, 0))
	return ev
}

func TestPublish(t *testing.T) {
	w := newWorld(t)
	res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{withID(follow("ann", "bob"), "e1"), follow("ann", "cid")},
		Wait:   skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if res.GetAcceptedCount() != 2 || res.GetPosition() == "" || len(res.GetRejections()) != 0 {
		t.Errorf("Publish: got %v, want 2 accepted events, a position and no rejections", res)
	}
	if ids := res.GetEventIds(); len(ids) != 2 || ids[0] != "e1" || ids[1] == "" {
		t.Errorf("Publish: got event ids %q, want e1 and an id that the service made", ids)
	}

	// Publish has waited until the events are visible, so the read names no position.
	checked := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "cid")}})
	if checked.GetKinds()[0] != explicit || checked.GetPosition() != res.GetPosition() {
		t.Errorf("CheckFollows: got %v, want an explicit follow at %s", checked, res.GetPosition())
	}
}

// TestPublishWithoutRoom checks that Publish accepts nothing while the disk is full, that reads
// continue, and that Publish works again when there is room.
func TestPublishWithoutRoom(t *testing.T) {
	var isFull atomic.Bool
	w := newWorld(t, func(o *worldOptions) {
		o.CheckDisk = func() error {
			if isFull.Load() {
				return fmt.Errorf("%w: 3 KiB are free", apierror.ErrDiskFull)
			}
			return nil
		}
	})
	last := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}}).GetPosition()

	isFull.Store(true)
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "cid")}, AllowPartial: true,
	}))
	wantError(t, err, connect.CodeResourceExhausted, "DISK_FULL", "")
	if !detailsOf(t, err).retry {
		t.Errorf("%v: got no RetryInfo", err)
	}
	if strings.Contains(err.Error(), "KiB") {
		t.Errorf("got the error %q, want one that does not tell how much room there is", err)
	}

	pairs := []*skeinv1.FollowPair{userPair("ann", "bob"), userPair("ann", "cid")}
	checked := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: last})
	if kinds := checked.GetKinds(); kinds[0] != explicit || kinds[1] == explicit {
		t.Errorf("CheckFollows: got %v, want only a follow of bob", kinds)
	}
	if checked.GetPosition() != last {
		t.Errorf("CheckFollows: got position %s, want %s", checked.GetPosition(), last)
	}

	isFull.Store(false)
	ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "cid")}})
}

// TestPublishAllOrNothing checks that one bad event refuses the whole call, and that the error says
// for each bad event what is wrong with it.
func TestPublishAllOrNothing(t *testing.T) {
	w := newWorld(t)
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{
		follow("ann", "bob"), follow("ann", "ann"), {}, follow("ann", "b c"), createBoard("ann", "", ""),
	}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[1].user_followed.target_user_id")

	var got []string
	for _, violation := range detailsOf(t, err).fields {
		got = append(got, violation.GetField()+" "+violation.GetReason())
		if description := violation.GetDescription(); description == "" || strings.HasPrefix(description, violation.GetField()) {
			t.Errorf("%s: got description %q, want a text that does not repeat the field", violation.GetField(), description)
		}
	}
	want := []string{
		"events[1].user_followed.target_user_id SELF_RELATION",
		"events[2].kind UNKNOWN_KIND",
		"events[3].user_followed.target_user_id INVALID_FIELD",
		"events[4].board_created.board.board_id INVALID_FIELD",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}

	// Nothing is in the log, not even the good event: the next event gets the first position.
	at := w.publish(follow("cid", "bob"))
	if want := w.log.Position(1).String(); at != want {
		t.Errorf("position of the next event: got %s, want %s", at, want)
	}
	res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at})
	if kind := res.GetKinds()[0]; kind != skeinv1.FollowKind_FOLLOW_KIND_NONE {
		t.Errorf("CheckFollows: got %v, want no follow", kind)
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
		t.Errorf("Publish: got %v, want 2 accepted events and a position", res)
	}
	if ids := res.GetEventIds(); len(ids) != 4 || ids[0] != "" || ids[1] != "e1" || ids[2] != "" || ids[3] == "" {
		t.Errorf("Publish: got event ids %q, want ids of the second and the fourth event", ids)
	}

	var rejections []string
	for _, r := range res.GetRejections() {
		rejections = append(rejections, fmt.Sprintf("%d %v %s", r.GetIndex(), r.GetReason(), r.GetField()))
		if r.GetMessage() == "" {
			t.Errorf("rejection of event %d: got no message", r.GetIndex())
		}
	}
	want := []string{"0 REASON_SELF_RELATION user_followed.target_user_id", "2 REASON_UNKNOWN_KIND kind"}
	if diff := cmp.Diff(want, rejections); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}

	// If no event is good, the call succeeds, but has no position to wait for.
	res = ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{{}}, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if res.GetAcceptedCount() != 0 || res.GetPosition() != "" || len(res.GetRejections()) != 1 || len(res.GetEventIds()) != 1 {
		t.Errorf("Publish of a bad event: got %v, want one rejection, one event id and no position", res)
	}
}

func TestPublishThatIsTooLarge(t *testing.T) {
	w := newWorld(t)
	largePin := func(attributesBytes int) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin:        &skeinv1.Pin{OwnerId: "ann", PinId: strings.Repeat("p", 128)},
			BoardId:    strings.Repeat("b", 128),
			ItemId:     strings.Repeat("i", 128),
			RepinOf:    &skeinv1.Pin{OwnerId: strings.Repeat("o", 128), PinId: strings.Repeat("r", 128)},
			Attributes: make([]byte, attributesBytes),
		}}}
	}

	for _, c := range []struct {
		name          string
		req           *skeinv1.PublishRequest
		reason, field string
	}{
		{"too many bytes", &skeinv1.PublishRequest{Events: slices.Repeat([]*skeinv1.Event{largePin(256)}, 1000)}, "TOO_LARGE", "events"},
		{"too many events", &skeinv1.PublishRequest{Events: slices.Repeat([]*skeinv1.Event{follow("a", "b")}, 1001)}, "TOO_LARGE", "events"},
		{"no events", &skeinv1.PublishRequest{}, "INVALID_FIELD", "events"},
		{"an unknown wait", &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "b")}, Wait: 7}, "INVALID_FIELD", "wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.events.Publish(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	// Events that are just small enough are accepted in JSON too, which is the longest form.
	w.connect(connect.WithProtoJSON())
	if at := w.publish(slices.Repeat([]*skeinv1.Event{largePin(100)}, 980)...); at == "" {
		t.Error("Publish of events that are small enough: got no position")
	}
}

// TestPublishVisibleInTime checks that events that are not visible in time are published
// nevertheless: the error says at which position they are in the log.
func TestPublishVisibleInTime(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.VisibleWait = time.Millisecond })
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	wantError(t, err, connect.CodeDeadlineExceeded, "NOT_CAUGHT_UP", "")
	at := detailsOf(t, err).info.GetMetadata()["position"]
	if want := w.log.Position(1).String(); at != want {
		t.Errorf("position of the error: got %q, want %q", at, want)
	}

	w.fold()
	res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at})
	if kind := res.GetKinds()[0]; kind != explicit {
		t.Errorf("CheckFollows at that position: got %v, want %v", kind, explicit)
	}
}

// TestPublishToAClosedLog checks that the error says that the log is unavailable.
func TestPublishToAClosedLog(t *testing.T) {
	w := newWorld(t)
	if err := w.publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "b")}}))
	wantError(t, err, connect.CodeUnavailable, "LOG_UNAVAILABLE", "")
}

// TestPublishRepeatsInACall checks that an event id that one user has twice in a call, for events of
// the same kind, refuses the call. With allow_partial, the call accepts the first of the two events.
func TestPublishRepeatsInACall(t *testing.T) {
	w := newWorld(t)
	evs := []*skeinv1.Event{
		withID(follow("ann", "bob"), "r"),
		withID(follow("cid", "bob"), "r"),
		withID(follow("ann", "dee"), "r"), // refused
		follow("ann", "eve"),
		follow("ann", "eve"),
		withID(unfollow("ann", "bob"), "r"),
		withID(follow("ann", "bob"), "r"), // refused
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
	wantError(t, err, connect.CodeInvalidArgument, "EVENT_ID_REUSED", "events[2].event_id")

	res := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: evs, AllowPartial: true, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	var rejections []string
	for _, r := range res.GetRejections() {
		rejections = append(rejections, fmt.Sprint(r.GetIndex(), " ", r.GetReason(), " ", r.GetField()))
	}
	want := []string{"2 REASON_EVENT_ID_REUSED event_id", "6 REASON_EVENT_ID_REUSED event_id"}
	if diff := cmp.Diff(want, rejections); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
	if res.GetAcceptedCount() != 5 {
		t.Errorf("Publish: got %d accepted events, want 5", res.GetAcceptedCount())
	}
}

// TestPublishNamesRepeats checks I6: a call that waits until its events are visible names the
// events that the log had already, and refuses those whose id the log has with other content.
func TestPublishNamesRepeats(t *testing.T) {
	followWithID := func(id, user, followed string) *skeinv1.Event { return withID(follow(user, followed), id) }
	type call struct {
		name     string
		evs      []*skeinv1.Event
		wait     skeinv1.PublishWait
		partial  bool
		accepted int32
		repeats  []int32
		// rejections are the indexes and reasons, separated by commas.
		rejections string
		// repeatsUnknown says that the answer does not know which events are repeats.
		repeatsUnknown bool
	}
	const visible = skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE
	bobAndCid := []*skeinv1.Event{followWithID("1", "ann", "bob"), followWithID("2", "ann", "cid")}
	bobAndYan := []*skeinv1.Event{followWithID("1", "ann", "bob"), followWithID("2", "ann", "yan")}

	dir := t.TempDir()
	for _, run := range []struct {
		name  string
		calls []call
	}{
		{"first", []call{
			{name: "new", evs: bobAndCid, wait: visible, accepted: 2},
			{name: "again", evs: bobAndCid, wait: visible, accepted: 2, repeats: []int32{0, 1}},
			{name: "another user", evs: []*skeinv1.Event{followWithID("1", "bob", "cid")}, wait: visible, accepted: 1},
			{name: "some of it", evs: []*skeinv1.Event{
				follow("ann", "dee"), followWithID("1", "ann", "eve"), followWithID("2", "ann", "cid"),
			}, wait: visible, accepted: 2, repeats: []int32{2}, rejections: "1 REASON_EVENT_ID_REUSED"},
			{name: "in part", evs: []*skeinv1.Event{
				followWithID("1", "ann", "fay"), follow("ann", "ann"), followWithID("3", "ann", "gil"), followWithID("2", "ann", "cid"),
			}, wait: visible, partial: true, accepted: 2, repeats: []int32{3}, rejections: "0 REASON_EVENT_ID_REUSED, 1 REASON_SELF_RELATION"},
			{name: "nothing but", evs: []*skeinv1.Event{followWithID("2", "ann", "zoe")}, wait: visible, rejections: "0 REASON_EVENT_ID_REUSED"},
			{name: "not waited for", evs: bobAndCid, accepted: 2, repeatsUnknown: true},
		}},

		// After a restart the ids are found in the log. An event that is the same as one whose id
		// was reused counts as a repeat.
		{"after a restart", []call{
			{name: "reused", evs: bobAndYan, wait: visible, accepted: 1, repeats: []int32{0}, rejections: "1 REASON_EVENT_ID_REUSED"},
			{name: "refused before", evs: bobAndYan, wait: visible, accepted: 2, repeats: []int32{0, 1}},
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			w := newWorld(t, func(o *worldOptions) { o.logConfig = eventlog.Config{Dir: dir, MaxBytes: 1 << 30} })
			var at string
			for _, c := range run.calls {
				res := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: c.evs, Wait: c.wait, AllowPartial: c.partial})
				at = res.GetPosition()

				var rejections []string
				for _, r := range res.GetRejections() {
					rejections = append(rejections, fmt.Sprint(r.GetIndex(), " ", r.GetReason()))
					if id := res.GetEventIds()[r.GetIndex()]; id != "" {
						t.Errorf("%s: rejected event %d has the id %q, want none", c.name, r.GetIndex(), id)
					}
					if r.GetMessage() == "" {
						t.Errorf("%s: the rejection of event %d has no message", c.name, r.GetIndex())
					}
				}
				if got := strings.Join(rejections, ", "); got != c.rejections {
					t.Errorf("%s: got rejections %q, want %q", c.name, got, c.rejections)
				}
				if !slices.Equal(res.GetRepeatedIndexes(), c.repeats) {
					t.Errorf("%s: got repeats %v, want %v", c.name, res.GetRepeatedIndexes(), c.repeats)
				}
				if res.GetRepeatsKnown() == c.repeatsUnknown {
					t.Errorf("%s: got repeats known %v, want %v", c.name, res.GetRepeatsKnown(), !c.repeatsUnknown)
				}
				if res.GetAcceptedCount() != c.accepted || res.GetPosition() == "" {
					t.Errorf("%s: got %v, want %d accepted events and a position", c.name, res, c.accepted)
				}
			}

			var followed []string
			for _, user := range []string{"bob", "cid", "dee", "eve", "fay", "gil", "yan", "zoe"} {
				pairs := []*skeinv1.FollowPair{userPair("ann", user)}
				res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: pairs, AtLeast: at})
				if res.GetKinds()[0] == explicit {
					followed = append(followed, user)
				}
			}
			if diff := cmp.Diff([]string{"bob", "cid", "dee", "gil"}, followed); diff != "" {
				t.Errorf("users whom ann follows (-want +got):\n%s", diff)
			}

			// The server does not guess about a position that it has no memory of.
			res := &skeinv1.PublishResponse{AcceptedCount: 1, EventIds: []string{"1"}}
			w.server.events.FillRepeats(eventlog.Result{Position: w.log.Position(1000)}, []int{0}, res)
			if res.GetRepeatsKnown() || res.GetAcceptedCount() != 1 {
				t.Errorf("FillRepeats of an unknown position: got %v, want repeats unknown and 1 accepted event", res)
			}
		})
	}
}

// TestPublishRefusesBackfillsThatCannotCount checks that backfills of a closed source, of deleted
// users, and with the offset of another event of the call are refused. Backfills at or below the
// highest offset of their source and kind are named as repeats, whether the call waits or not.
func TestPublishRefusesBackfillsThatCannotCount(t *testing.T) {
	const visible = skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE
	backfillClosed := func(source string) *skeinv1.Event {
		return &skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{Source: source}}}
	}
	backfillFrom := func(source string, offset uint64, ev *skeinv1.Event) *skeinv1.Event {
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
		// rejections are the indexes, reasons and messages.
		rejections []string
	}{
		{
			name: "an import", wait: visible, accepted: 4,
			events: []*skeinv1.Event{
				backfillFrom("old", 5, follow("ann", "bob")),
				backfillFrom("old", 5, like()),
				backfillFrom("old", 5, served()),
				backfillFrom("gone", 1, follow("ann", "bob")),
			},
		},
		{
			name: "repeats of it and newer offsets", accepted: 5, repeats: []int32{0, 1, 2},
			events: []*skeinv1.Event{
				backfillFrom("old", 1, follow("ann", "cid")),
				backfillFrom("old", 5, like()),
				backfillFrom("old", 2, served()),
				backfillFrom("other", 1, follow("ann", "cid")),
				backfillFrom("old", 6, follow("ann", "dan")),
			},
		},
		{
			name: "a repeat, waited for", wait: visible, accepted: 1, repeats: []int32{0},
			events: []*skeinv1.Event{backfillFrom("old", 1, follow("ann", "cid"))},
		},
		{
			name: "one offset twice", accepted: 1,
			events:     []*skeinv1.Event{backfillFrom("old", 7, follow("ann", "eve")), backfillFrom("old", 7, follow("ann", "fay"))},
			rejections: []string{"1 REASON_INVALID_BACKFILL offset is 7: it must be above 7, the offset of events[0] of the same source and kind"},
		},
		{
			name: "a deletion and the end of a source", wait: visible, accepted: 2,
			events: []*skeinv1.Event{deletedUser("dan"), backfillClosed("gone")},
		},
		{
			name: "after a deletion and the end of a source", accepted: 2,
			events: []*skeinv1.Event{
				backfillFrom("old", 8, follow("ann", "dan")),
				backfillFrom("gone", 9, like()),
				backfillFrom("other", 2, follow("ann", "eve")),
				follow("ann", "dan"),
			},
			rejections: []string{
				`0 REASON_INVALID_BACKFILL user_followed is a backfill about "dan", who was deleted: only live events about a deleted user count`,
				`1 REASON_INVALID_BACKFILL source "gone" is closed: a backfill_closed ended its backfills, or all, and only live events count since`,
			},
		},
		{name: "the end of all sources", wait: visible, accepted: 1, events: []*skeinv1.Event{backfillClosed("")}},
		{
			name: "after the end of all sources", accepted: 0,
			events: []*skeinv1.Event{backfillFrom("new", 1, follow("ann", "eve"))},
			rejections: []string{
				`0 REASON_INVALID_BACKFILL source "new" is closed: a backfill_closed ended its backfills, or all, and only live events count since`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: c.events, Wait: c.wait, AllowPartial: true})
			var rejections []string
			for _, r := range res.GetRejections() {
				rejections = append(rejections, fmt.Sprint(r.GetIndex(), " ", r.GetReason(), " ", r.GetMessage()))
			}
			if diff := cmp.Diff(c.rejections, rejections); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
			if res.GetAcceptedCount() != c.accepted || !slices.Equal(res.GetRepeatedIndexes(), c.repeats) {
				t.Errorf("got %d accepted events and repeats %v, want %d and %v",
					res.GetAcceptedCount(), res.GetRepeatedIndexes(), c.accepted, c.repeats)
			}
		})
	}

	// Without allow_partial the call is refused, and the error names the field.
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "gil"), backfillFrom("new", 1, follow("ann", "eve"))},
	}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_BACKFILL", "events[1].source")
}
