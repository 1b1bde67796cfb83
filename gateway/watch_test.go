package gateway

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
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

// watch opens a stream, which ends with the test.
func (w *world) watch(after string, kinds ...string) watching {
	w.t.Helper()
	// With the deadline, a test fails if a message that it waits for never comes.
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

// next returns the next message.
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
		m := w.next()
		if m.GetEvent() != nil {
			got = append(got, m)
		} else if m.GetEventTime() != nil {
			w.t.Errorf("got event time %v in a message without an event, want none", m.GetEventTime())
		}
	}
	return got
}

// appendHistory appends a history with repeats, malformed events and envelopes, and backfills. It
// returns the events that count. The last one is a live event.
func appendHistory(t *testing.T, appendRaw func([]byte)) (want []*skeinv1.Event) {
	t.Helper()
	imported := follow("old", "bob")
	imported.Source = "import"
	imported.Offset = 1
	imported.OccurredAt = timestamppb.New(time.Unix(1_000_000_000, 5000))
	good := []*skeinv1.Event{
		0: follow("ann", "bob"),
		1: withID(follow("cid", "bob"), "a"),
		2: createBoard("bob", "cats", "Cats"),
		3: pinned("bob", "cats", "p1"),
		4: unfollow("ann", "bob"),
		5: imported,
		6: block("dan", "ann"),
		7: withID(follow("eve", "bob"), "b"),
		8: mute("eve", "fay"),
	}
	selfFollow := follow("self", "self")

	appendEnvelope := func(evs ...*skeinv1.Event) {
		t.Helper()
		appendRaw(marshal(t, &skeinv1.EventBatch{Events: evs}))
	}
	appendEnvelope(good[0])
	appendEnvelope(selfFollow, good[1], good[1], good[2], good[3], selfFollow)
	appendRaw([]byte{0xff})
	appendEnvelope(good[1], selfFollow) // No event of this envelope counts.
	appendEnvelope(good[4], good[5], good[6], good[7], good[1])
	appendEnvelope(good[8])
	return good
}

// TestWatch checks that a caller who is interrupted at any message, and continues from the position
// of the message, gets exactly the rest, with the same times.
func TestWatch(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	want := appendHistory(t, appendRaw)

	// Live events have increasing times of the log, and backfills their own times.
	all := w.watch("EARLIEST").take(len(want))
	last := time.Time{}
	for i, m := range all {
		if diff := cmp.Diff(want[i], m.GetEvent(), protocmp.Transform()); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
		eventTime := m.GetEventTime().AsTime()
		if want[i].GetSource() != "" {
			if occurred := want[i].GetOccurredAt().AsTime(); !eventTime.Equal(occurred) {
				t.Errorf("backfill %d: got time %v, want %v", i, eventTime, occurred)
			}
			continue
		}
		if !eventTime.After(last) {
			t.Errorf("event %d: got time %v, want a time after %v", i, eventTime, last)
		}
		last = eventTime
	}

	for i, m := range all[:len(all)-1] {
		rest := w.watch(m.GetPosition())
		if first := rest.next(); first.GetEvent() != nil || first.GetPosition() != m.GetPosition() {
			t.Errorf("continued after event %d: got first message %v, want only position %s", i, first, m.GetPosition())
		}
		if diff := cmp.Diff(all[i+1:], rest.take(len(all)-i-1), protocmp.Transform()); diff != "" {
			t.Errorf("continued after event %d (-want +got):\n%s", i, diff)
		}
	}

	// A read can demand every position, and then has the event.
	for i, m := range all {
		res := ask(w, w.graph.ListBoards, &skeinv1.ListBoardsRequest{UserId: "bob", AtLeast: m.GetPosition()})
		if hasBoard := i >= 2; hasBoard && len(res.GetEntries()) != 1 {
			t.Errorf("ListBoards at the position of event %d: got %v, want one board", i, res)
		}
	}
}

func TestWatchKinds(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	appendHistory(t, appendRaw)

	var got []string
	position := ""
	for _, m := range w.watch("EARLIEST", "user_blocked", "pin_created", "user_muted").take(3) {
		got = append(got, fmt.Sprintf("%T", m.GetEvent().GetKind()))
		position = m.GetPosition()
	}
	want := []string{"*skeinv1.Event_PinCreated", "*skeinv1.Event_UserBlocked", "*skeinv1.Event_UserMuted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}

	rest := w.watch(position, "user_blocked")
	w.publish(follow("gil", "bob"), block("gil", "ann"), follow("hal", "bob"))
	if m := rest.take(1)[0]; m.GetEvent().GetUserBlocked().GetUserId() != "gil" {
		t.Errorf("next event: got %v, want the block by gil", m)
	}
}

// TestWatchUsers checks that a filter of users has the events in which one of them acts or is the
// target, and that a client can continue from every position.
func TestWatchUsers(t *testing.T) {
	external, appendRaw := stranger(t)
	w := newWorld(t, external)
	history := appendHistory(t, appendRaw)
	for name, c := range map[string]struct {
		users []string
		kinds []string
		// want are indexes in the history.
		want []int
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
				if diff := cmp.Diff(history[i], m.GetEvent(), protocmp.Transform()); diff != "" {
					t.Errorf("event %d (-want +got):\n%s", i, diff)
				}
				after = m.GetPosition()
				_ = stream.Close()
			}
		})
	}

	for field, users := range map[string][]string{"user_ids[1]": {"ann", ""}, "user_ids": make([]string, 101)} {
		t.Run("bad "+field, func(t *testing.T) {
			stream, err := w.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{UserIds: users}))
			if err != nil {
				t.Fatal(err)
			}
			for stream.Receive() {
				t.Errorf("got message %v, want none", stream.Msg())
			}
			wantError(t, stream.Err(), connect.CodeInvalidArgument, "INVALID_FIELD", field)
			_ = stream.Close()
		})
	}
}

// TestWatchFromNowOn checks that a caller without a position gets the events that are published
// from now on. While no event passes the filter, checkpoints say how far the server has read the
// log.
func TestWatchFromNowOn(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.watchPeriod = time.Millisecond })
	before := w.publish(follow("ann", "bob"))
	allKinds := w.watch("")
	if m := allKinds.next(); m.GetEvent() != nil || m.GetPosition() != before {
		t.Errorf("first message: got %v, want only position %s", m, before)
	}
	onlyMutes := w.watch("", "user_muted")

	at := w.publish(follow("cid", "bob"))
	if m := allKinds.take(1)[0]; m.GetPosition() != at || m.GetEvent().GetUserFollowed().GetUserId() != "cid" {
		t.Errorf("first event: got %v, want the follow by cid at %s", m, at)
	}
	for m := onlyMutes.next(); m.GetPosition() != at; m = onlyMutes.next() {
		if m.GetEvent() != nil {
			t.Fatalf("stream of mutes: got event %v, want only positions", m)
		}
	}

	// A client can continue from a checkpoint.
	w.publish(follow("dan", "bob"), mute("dan", "bob"))
	if m := w.watch(at, "user_muted").take(1)[0]; m.GetEvent().GetUserMuted() == nil {
		t.Errorf("event after the checkpoint: got %v, want the mute", m)
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.Watches = 1 })
	at := parsePosition(t, w.publish(follow("ann", "bob")))
	changed := func(change func(*events.EventPosition)) string {
		p := events.EventPosition{Position: at}
		change(&p)
		return p.String()
	}
	for name, c := range map[string]struct {
		after         string
		kinds         []string
		field, reason string
	}{
		"no position":                   {"x", nil, "after", "INVALID_POSITION"},
		"EARLIEST in lower case":        {"earliest", nil, "after", "INVALID_FIELD"},
		"of another log":                {changed(func(p *events.EventPosition) { p.Log[0]++ }), nil, "after", "INVALID_POSITION"},
		"of another epoch":              {changed(func(p *events.EventPosition) { p.Epoch++ }), nil, "after", "INVALID_POSITION"},
		"from the future":               {changed(func(p *events.EventPosition) { p.Seq++ }), nil, "after", "INVALID_POSITION"},
		"from the middle of the future": {changed(func(p *events.EventPosition) { p.Seq++; p.Slots = 3 }), nil, "after", "INVALID_POSITION"},
		"an unknown kind":               {"", []string{"follow"}, "kinds[0]", "INVALID_FIELD"},
		"an empty kind":                 {"", []string{""}, "kinds[0]", "INVALID_FIELD"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := w.watch(c.after, c.kinds...)
			for stream.Receive() {
				t.Errorf("got message %v, want none", stream.Msg())
			}
			wantError(t, stream.Err(), connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	// A second stream is beyond the limit.
	w.watch("").next()
	beyondLimit := w.watch("")
	if beyondLimit.Receive() {
		t.Errorf("stream beyond the limit: got message %v, want none", beyondLimit.Msg())
	}
	wantError(t, beyondLimit.Err(), connect.CodeResourceExhausted, "OVERLOADED", "")
}

// TestWatchOfWhatIsTrimmed checks that the error of a position that is trimmed names the earliest
// position that is not.
func TestWatchOfWhatIsTrimmed(t *testing.T) {
	w := newWorld(t)
	err := apierror.Of(w.server.events.WatchError(t.Context(), fmt.Errorf("wrapped: %w", events.ErrTrimmed))).ConnectError()
	wantError(t, err, connect.CodeOutOfRange, "POSITION_TRIMMED", "")
	if got, want := detailsOf(t, err).info.GetMetadata()["earliest"], w.log.Position(0).String(); got != want {
		t.Errorf("earliest position: got %s, want %s", got, want)
	}

	err = apierror.Of(w.server.events.WatchError(t.Context(), events.ErrClosed)).ConnectError()
	wantError(t, err, connect.CodeUnavailable, "LOG_UNAVAILABLE", "")
}

// TestWatchSlowly checks that a client that does not read its messages delays neither the folding
// nor another client, and that the shutdown of the server ends both streams.
func TestWatchSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := w.watch("EARLIEST")
	fast := w.watch("EARLIEST")

	// These are so many bytes that they do not fit into the buffers of a connection.
	const envelopes, perEnvelope = 30, 1000
	attributes := make([]byte, 256)
	at := ""
	for i := range envelopes {
		var evs []*skeinv1.Event
		for j := range perEnvelope {
			ev := pinned("bob", "", fmt.Sprintf("%d.%d", i, j))
			ev.GetPinCreated().Attributes = attributes
			evs = append(evs, ev)
		}
		at = w.publish(evs...)
	}

	ask(w, w.graph.ListBoards, &skeinv1.ListBoardsRequest{UserId: "bob", AtLeast: at})
	if got := fast.take(envelopes * perEnvelope); got[len(got)-1].GetPosition() != at {
		t.Errorf("other client: got last position %s, want %s", got[len(got)-1].GetPosition(), at)
	}
	if got := slow.take(envelopes * perEnvelope); got[len(got)-1].GetPosition() != at {
		t.Errorf("slow client: got last position %s, want %s", got[len(got)-1].GetPosition(), at)
	}

	if err := w.stop(); err != nil {
		t.Error(err)
	}
	for _, stream := range []watching{slow, fast} {
		for stream.Receive() {
		}
		wantError(t, stream.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
	}
}
