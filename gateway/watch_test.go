package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// watching is a client of Watch.
type watching struct {
	*connect.ServerStreamForClient[skeinv1.WatchResponse]
	t testing.TB
}

func (w *world) watch(after string, kinds ...string) watching {
	w.t.Helper()
	// What is lost is not waited for.
	ctx, cancel := context.WithTimeout(w.t.Context(), patienceOfTests)
	stream, err := w.events.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{After: after, Kinds: kinds}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		_ = stream.Close()
	})
	return watching{stream, w.t}
}

// next is the next message.
func (w watching) next() *skeinv1.WatchResponse {
	w.t.Helper()
	if !w.Receive() {
		w.t.Fatal(w.Err())
	}
	return w.Msg()
}

// take returns the next n events. It skips messages that have only a position.
func (w watching) take(n int) (got []*skeinv1.WatchResponse) {
	w.t.Helper()
	for len(got) < n {
		if m := w.next(); m.GetEvent() != nil {
			got = append(got, m)
		} else if m.GetEventTime() != nil {
			w.t.Error("a checkpoint with a time")
		}
	}
	return got
}

func named(id string, ev *skeinv1.Event) *skeinv1.Event {
	ev.EventId = id
	return ev
}

func batch(t *testing.T, evs ...*skeinv1.Event) []byte {
	t.Helper()
	data, err := proto.Marshal(&skeinv1.EventBatch{Events: evs})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// watched is a history with repeats, malformed events and envelopes, and backfills. It ends with a
// live event.
func watched(t *testing.T, appendRaw func([]byte)) (want []*skeinv1.Event) {
	t.Helper()
	old := follow("old", "bob")
	old.Source, old.Offset, old.OccurredAt = "import", 1, timestamppb.New(time.Unix(1_000_000_000, 5000))
	good := []*skeinv1.Event{
		follow("ann", "bob"), named("a", follow("cid", "bob")), createBoard("bob", "cats", "Cats"), pinned("bob", "cats", "p1"),
		unfollow("ann", "bob"), old, block("dan", "ann"), named("b", follow("eve", "bob")), mute("eve", "fay"),
	}
	appendRaw(batch(t, good[0]))
	appendRaw(batch(t, follow("self", "self"), good[1], good[1], good[2], good[3], follow("self", "self")))
	appendRaw([]byte{0xff})
	appendRaw(batch(t, good[1], follow("self", "self"))) // nothing passes
	appendRaw(batch(t, good[4], good[5], good[6], good[7], good[1]))
	appendRaw(batch(t, good[8]))
	return good
}

// A caller that is interrupted at any message and continues from its position gets exactly the
// rest, with the same times.
func TestWatch(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	want := watched(t, appendRaw)
	all := w.watch("EARLIEST").take(len(want))
	last := time.Time{}
	for i, m := range all {
		if diff := cmp.Diff(want[i], m.GetEvent(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		at := m.GetEventTime().AsTime()
		if want[i].GetSource() != "" {
			if !at.Equal(want[i].GetOccurredAt().AsTime()) {
				t.Errorf("a backfill is of %v", at)
			}
			continue
		}
		if !at.After(last) {
			t.Errorf("%v after %v", at, last)
		}
		last = at
	}
	for i, m := range all[:len(all)-1] {
		rest := w.watch(m.GetPosition())
		if first := rest.next(); first.GetEvent() != nil || first.GetPosition() != m.GetPosition() {
			t.Errorf("it begins with %v", first)
		}
		if diff := cmp.Diff(all[i+1:], rest.take(len(all)-i-1), protocmp.Transform()); diff != "" {
			t.Errorf("after event %d: %s", i, diff)
		}
	}
	// Every position can be demanded of a read, and is of a state that has the event.
	for i, m := range all {
		res := ask(w, w.graph.ListBoards, &skeinv1.ListBoardsRequest{UserId: "bob", AtLeast: m.GetPosition()})
		if i >= 2 && len(res.GetEntries()) != 1 {
			t.Errorf("at the position of event %d: %v", i, res)
		}
	}
}

func TestWatchKinds(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	watched(t, appendRaw)
	var got []string
	position := ""
	for _, m := range w.watch("EARLIEST", "user_blocked", "pin_created", "user_muted").take(3) {
		got, position = append(got, fmt.Sprintf("%T", m.GetEvent().GetKind())), m.GetPosition()
	}
	want := []string{"*skeinv1.Event_PinCreated", "*skeinv1.Event_UserBlocked", "*skeinv1.Event_UserMuted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	rest := w.watch(position, "user_blocked")
	w.publish(follow("gil", "bob"), block("gil", "ann"), follow("hal", "bob"))
	if m := rest.take(1)[0]; m.GetEvent().GetUserBlocked().GetUserId() != "gil" {
		t.Error(m)
	}
}

// A filter of users has the events in which one of them acts or is the target, and a client can
// continue from every position.
func TestWatchUsers(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	want := watched(t, appendRaw)
	for name, c := range map[string]struct {
		users []string
		kinds []string
		want  []int
	}{
		"one who acts and is the target": {[]string{"ann"}, nil, []int{0, 4, 6}},
		"an owner":                       {[]string{"bob"}, []string{"board_created", "pin_created", "user_blocked"}, []int{2, 3}},
		"two":                            {[]string{"eve", "dan"}, nil, []int{6, 7, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
			defer cancel()
			after := "EARLIEST"
			for _, i := range c.want {
				stream, err := w.events.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{After: after, Kinds: c.kinds, UserIds: c.users}))
				if err != nil {
					t.Fatal(err)
				}
				m := watching{stream, t}.take(1)[0]
				if diff := cmp.Diff(want[i], m.GetEvent(), protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
				after = m.GetPosition()
				_ = stream.Close()
			}
		})
	}
	for field, users := range map[string][]string{"user_ids[1]": {"ann", ""}, "user_ids": make([]string, 101)} {
		stream, err := w.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{UserIds: users}))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			t.Error(stream.Msg())
		}
		wantError(t, stream.Err(), connect.CodeInvalidArgument, "INVALID_FIELD", field)
		_ = stream.Close()
	}
}

// Without a position the caller gets what is published from now on. While nothing is, checkpoints
// say how far the log was read.
func TestWatchFromNowOn(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.watchPeriod = time.Millisecond })
	before := w.publish(follow("ann", "bob"))
	now := w.watch("")
	if m := now.next(); m.GetEvent() != nil || m.GetPosition() != before {
		t.Errorf("it begins with %v", m)
	}
	muted := w.watch("", "user_muted")
	at := w.publish(follow("cid", "bob"))
	if m := now.take(1)[0]; m.GetPosition() != at || m.GetEvent().GetUserFollowed().GetUserId() != "cid" {
		t.Errorf("%v, at %s", m, at)
	}
	for m := muted.next(); m.GetPosition() != at; m = muted.next() {
		if m.GetEvent() != nil {
			t.Fatal(m)
		}
	}
	w.publish(follow("dan", "bob"), mute("dan", "bob"))
	if m := w.watch(at, "user_muted").take(1)[0]; m.GetEvent().GetUserMuted() == nil {
		t.Error(m)
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Watches = 1 })
	at, err := events.ParsePosition(w.publish(follow("ann", "bob")))
	if err != nil {
		t.Fatal(err)
	}
	position := func(f func(*events.EventPosition)) string {
		p := events.EventPosition{Position: at}
		f(&p)
		return p.String()
	}
	for _, c := range []struct {
		after, kind, field, reason string
	}{
		{after: "x", field: "after", reason: "INVALID_POSITION"},
		{after: "earliest", field: "after", reason: "INVALID_FIELD"},
		{after: position(func(p *events.EventPosition) { p.Log[0]++ }), field: "after", reason: "INVALID_POSITION"},
		{after: position(func(p *events.EventPosition) { p.Epoch++ }), field: "after", reason: "INVALID_POSITION"},
		{after: position(func(p *events.EventPosition) { p.Seq++ }), field: "after", reason: "INVALID_POSITION"},
		{after: position(func(p *events.EventPosition) { p.Seq, p.Slots = p.Seq+1, 3 }), field: "after", reason: "INVALID_POSITION"},
		{kind: "follow", field: "kinds[0]", reason: "INVALID_FIELD"},
		{kind: "", field: "kinds[0]", reason: "INVALID_FIELD"},
	} {
		stream := w.watch(c.after, slices.DeleteFunc([]string{c.kind}, func(string) bool { return c.after != "" })...)
		for stream.Receive() {
			t.Error(stream.Msg())
		}
		wantError(t, stream.Err(), connect.CodeInvalidArgument, c.reason, c.field)
	}
	w.watch("").next()
	more := w.watch("")
	more.Receive()
	wantError(t, more.Err(), connect.CodeResourceExhausted, "OVERLOADED", "")
}

// The error of a position that is gone names the earliest that is not.
func TestWatchOfWhatIsTrimmed(t *testing.T) {
	w := newWorld(t)
	err := apierror.Of(w.server.events.WatchError(t.Context(), fmt.Errorf("wrapped: %w", events.ErrTrimmed))).ConnectError()
	wantError(t, err, connect.CodeOutOfRange, "POSITION_TRIMMED", "")
	if got := detailsOf(t, err).info.GetMetadata()["earliest"]; got != w.log.Position(0).String() {
		t.Error(got)
	}
	wantError(t, apierror.Of(w.server.events.WatchError(t.Context(), events.ErrClosed)).ConnectError(),
		connect.CodeUnavailable, "LOG_UNAVAILABLE", "")
}

// A client that does not take what it is sent holds up no fold and no other client, and the end of
// the service ends all.
func TestWatchSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, fast := w.watch("EARLIEST"), w.watch("EARLIEST")
	const n = 30
	var at string
	attributes := make([]byte, 256)
	for i := range n {
		var evs []*skeinv1.Event
		for j := range 1000 {
			ev := pinned("bob", "", fmt.Sprintf("%d.%d", i, j))
			ev.GetPinCreated().Attributes = attributes
			evs = append(evs, ev)
		}
		at = w.publish(evs...)
	}
	ask(w, w.graph.ListBoards, &skeinv1.ListBoardsRequest{UserId: "bob", AtLeast: at})
	if got := fast.take(n * 1000); got[len(got)-1].GetPosition() != at {
		t.Error("the last event is not at the last position")
	}
	if got := slow.take(n * 1000); got[len(got)-1].GetPosition() != at {
		t.Error("the last event is not at the last position")
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	for _, s := range []watching{slow, fast} {
		for s.Receive() {
		}
		wantError(t, s.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
	}
}
