package gateway

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/feedservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func pinNamed(owner, pin string) *skeinv1.Pin { return &skeinv1.Pin{OwnerId: owner, PinId: pin} }

func movedTo(owner, pin, board string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinMoved{PinMoved: &skeinv1.PinMoved{Pin: pinNamed(owner, pin), BoardId: board}}}
}

func editedPin(owner, pin, attributes string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinEdited{PinEdited: &skeinv1.PinEdited{
		Pin: pinNamed(owner, pin), Attributes: []byte(attributes),
	}}}
}

func deletedBoard(owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: board(owner, id)}}}
}

func deletedUser(user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: user}}}
}

// pinStates asks for pins at a position, and demands that the answer is of that one.
func (w *world) pinStates(at string, pins ...*skeinv1.Pin) []*skeinv1.PinState {
	w.t.Helper()
	res := ask(w, w.feed.BatchGetPins, &skeinv1.BatchGetPinsRequest{Pins: pins, AtLeast: at})
	if res.GetPosition() != at {
		w.t.Errorf("answered at %s, not at %s", res.GetPosition(), at)
	}
	return res.GetPins()
}

// TestBatchGetPins: each pin is as ListPins shows it, or does not live, in the order of the
// request.
func TestBatchGetPins(t *testing.T) {
	w := newWorld(t, withFeeds)
	withBytes := pinned("bob", "cats", "bytes")
	withBytes.GetPinCreated().Attributes = []byte("16:9")
	at := w.publish(
		createBoard("bob", "cats", "Cats"), createBoard("bob", "dogs", "Dogs"), createBoard("bob", "gone", "Gone"),
		withBytes, pinned("bob", "", "plain"), pinned("bob", "cats", "moved"), showing("bob", "shows", "video"),
		repinned("cid", "again", "video", "bob", "shows"), repinned("cid", "of-dan", "dans", "dan", "dans"),
		pinned("bob", "cats", "ended"), pinned("bob", "gone", "on-gone"), pinned("bob", "gone", "saved"), pinned("dan", "", "dans"),
		movedTo("bob", "moved", "dogs"), movedTo("bob", "saved", ""), unpinned("bob", "ended"), deletedBoard("bob", "gone"), deletedUser("dan"),
	)
	want := []*skeinv1.PinState{
		{OwnerId: "bob", PinId: "ended"},
		{OwnerId: "bob", PinId: "bytes", Living: true, BoardId: "cats", ItemId: "bytes", Attributes: []byte("16:9")},
		{OwnerId: "cid", PinId: "again", Living: true, ItemId: "video", RepinOf: pinNamed("bob", "shows")},
		{OwnerId: "cid", PinId: "of-dan", Living: true, ItemId: "dans", RepinOfDeleted: true},
		{OwnerId: "nobody", PinId: "plain"},
		{OwnerId: "bob", PinId: "moved", Living: true, BoardId: "dogs", ItemId: "moved"},
		{OwnerId: "bob", PinId: "plain", Living: true, ItemId: "plain"},
		{OwnerId: "bob", PinId: "never"},
		{OwnerId: "dan", PinId: "dans"},
		{OwnerId: "bob", PinId: "shows", Living: true, ItemId: "video"},
		{OwnerId: "bob", PinId: "on-gone"},
		{OwnerId: "bob", PinId: "saved", Living: true, ItemId: "saved"},
		{OwnerId: "bob", PinId: "plain", Living: true, ItemId: "plain"},
	}
	var pins []*skeinv1.Pin
	for _, p := range want {
		pins = append(pins, pinNamed(p.GetOwnerId(), p.GetPinId()))
	}
	got := w.pinStates(at, pins...)
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&skeinv1.PinState{}, "create_time")); diff != "" {
		t.Error(diff)
	}
	listed := map[string]*skeinv1.FeedEntry{}
	for _, owner := range []string{"bob", "cid", "dan"} {
		list := pinsOf(owner)
		list.AtLeast = at
		for _, e := range ask(w, w.feed.ListPins, list).GetEntries() {
			listed[e.GetOwnerId()+"/"+e.GetPinId()] = e
		}
	}
	if len(listed) != 7 {
		t.Errorf("%d pins are listed", len(listed))
	}
	for _, p := range got {
		of := listed[p.GetOwnerId()+"/"+p.GetPinId()]
		if p.GetLiving() != (of != nil) || (p.GetCreateTime() != nil) != p.GetLiving() {
			t.Errorf("%v is listed as %v", p, of)
		}
		if diff := cmp.Diff(of.GetCreateTime(), p.GetCreateTime(), protocmp.Transform()); diff != "" {
			t.Errorf("%s began at another time than in its list: %s", p.GetPinId(), diff)
		}
	}
	// What ended may begin again, and has another time then.
	at = w.publish(pinned("bob", "dogs", "ended"))
	again := w.pinStates(at, pinNamed("bob", "ended"), pinNamed("bob", "plain"))
	if !again[0].GetLiving() || again[0].GetBoardId() != "dogs" || !again[0].GetCreateTime().AsTime().After(again[1].GetCreateTime().AsTime()) {
		t.Error(again)
	}
}

// TestEditChangesAttributesAndNoOrder: an edit is in the page, the list and the state of the pin,
// with its time. The pin keeps its place and its time, a count of newer pins does not have it, and
// the edit ends with the life of the pin.
func TestEditChangesAttributesAndNoOrder(t *testing.T) {
	w := newWorld(t, withFeeds)
	first := pinned("bob", "", "first")
	first.GetPinCreated().Attributes = []byte("old")
	at := w.publish(follow("ann", "bob"), first, pinned("bob", "", "second"))
	before := ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})

	at = w.publish(editedPin("bob", "first", "older"), editedPin("bob", "first", "new"), editedPin("bob", "never", "new"))
	newer := ask(w, w.feed.CountNewer, &skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: before.GetNewestToken(), AtLeast: at})
	if newer.GetCount() != 0 {
		t.Errorf("%d newer pins after edits, want 0", newer.GetCount())
	}
	want := before.GetEntries()
	want[1].Attributes = []byte("new")
	ignored := protocmp.IgnoreFields(&skeinv1.FeedEntry{}, "edit_time")
	list := pinsOf("bob")
	list.AtLeast = at
	page := ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetEntries()
	for name, entries := range map[string][]*skeinv1.FeedEntry{"feed": page, "pins": ask(w, w.feed.ListPins, list).GetEntries()} {
		if diff := cmp.Diff(want, entries, protocmp.Transform(), ignored); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", name, diff)
		}
		if created, edited := entries[1].GetCreateTime().AsTime(), entries[1].GetEditTime().AsTime(); !edited.After(created) || entries[0].GetEditTime() != nil {
			t.Errorf("%s: edited at %v, and the other pin at %v, want after %v and never", name, edited, entries[0].GetEditTime(), created)
		}
	}
	state := w.pinStates(at, pinNamed("bob", "first"))[0]
	if diff := cmp.Diff(page[1].GetEditTime(), state.GetEditTime(), protocmp.Transform()); diff != "" || string(state.GetAttributes()) != "new" {
		t.Errorf("pin state %v, want the attributes and the edit time of the page: %s", state, diff)
	}

	at = w.publish(unpinned("bob", "first"), pinned("bob", "", "first"))
	if again := w.pinStates(at, pinNamed("bob", "first"))[0]; !again.GetLiving() || again.GetEditTime() != nil || len(again.GetAttributes()) > 0 {
		t.Errorf("created again: %v, want a living pin that was not edited", again)
	}
}

// A call takes a thousand pins.
func TestBatchGetManyPins(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(pinned("bob", "", "p"), showing("cid", "p", "q"))
	pins := make([]*skeinv1.Pin, 1000)
	for i := range pins {
		pins[i] = []*skeinv1.Pin{pinNamed("bob", "p"), pinNamed("cid", "p"), pinNamed("dan", strconv.Itoa(i))}[i%3]
	}
	for i, p := range w.pinStates(at, pins...) {
		if want := []string{"p", "q", ""}[i%3]; p.GetItemId() != want || p.GetOwnerId() != pins[i].GetOwnerId() || p.GetPinId() != pins[i].GetPinId() {
			t.Errorf("pin %d: %v", i, p)
		}
	}
}

func TestBatchGetPinsBadInput(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(pinned("bob", "", "p"))
	good := []*skeinv1.Pin{pinNamed("bob", "p")}
	for name, c := range map[string]struct {
		pins          []*skeinv1.Pin
		at            string
		reason, field string
	}{
		"none":            {nil, at, "INVALID_FIELD", "pins"},
		"too many":        {slices.Repeat(good, 1001), at, "INVALID_FIELD", "pins"},
		"an empty name":   {[]*skeinv1.Pin{good[0], {}}, at, "INVALID_FIELD", "pins[1].owner_id"},
		"no pin":          {[]*skeinv1.Pin{good[0], pinNamed("bob", "")}, at, "INVALID_FIELD", "pins[1].pin_id"},
		"a space":         {[]*skeinv1.Pin{pinNamed("a b", "p")}, at, "INVALID_FIELD", "pins[0].owner_id"},
		"a long id":       {[]*skeinv1.Pin{pinNamed("bob", strings.Repeat("x", 129))}, at, "INVALID_FIELD", "pins[0].pin_id"},
		"no position":     {good, "x", "INVALID_POSITION", "at_least"},
		"a long position": {good, strings.Repeat("x", 257), "INVALID_FIELD", "at_least"},
		"beyond the log":  {good, w.log.Position(99).String(), "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.BatchGetPins(t.Context(), connect.NewRequest(&skeinv1.BatchGetPinsRequest{Pins: c.pins, AtLeast: c.at}))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// The check by hand refuses exactly what the rules of the proto and the rules of ids refuse.
func TestHandCheckOfBatchGetPins(t *testing.T) {
	r, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.BatchGetPinsRequest{
			AtLeast: rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "pins") {
			req.Pins = append(req.Pins, pinNamed(id.Draw(t, "owner"), id.Draw(t, "pin")))
		}
		bad := len(r.Check(req)) > 0
		for _, p := range req.GetPins() {
			bad = bad || events.ValidateID(p.GetOwnerId()) != nil || events.ValidateID(p.GetPinId()) != nil
		}
		if got := feedservice.ValidateBatchGetPins(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
	for n, bad := range map[int]bool{0: true, 1: false, 1000: false, 1001: true} {
		req := &skeinv1.BatchGetPinsRequest{Pins: slices.Repeat([]*skeinv1.Pin{pinNamed("bob", "p")}, n)}
		if got := feedservice.ValidateBatchGetPins(req); (len(got) > 0) != bad || (len(r.Check(req)) > 0) != bad {
			t.Errorf("%d pins: %v by hand", n, got)
		}
	}
}

// A process that is behind answers what it is asked without a position, and waits for one.
func TestBatchGetPinsAtLeast(t *testing.T) {
	w := newWorld(t, withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	at := w.publish(pinned("bob", "", "p"))
	req := &skeinv1.BatchGetPinsRequest{Pins: []*skeinv1.Pin{pinNamed("bob", "p")}}
	if res := ask(w, w.feed.BatchGetPins, req); res.GetPins()[0].GetLiving() || res.GetPosition() == at {
		t.Error(res)
	}
	req.AtLeast = at
	_, err := w.feed.BatchGetPins(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	w.fold()
	<-w.inboxReady
	res, err := w.feed.BatchGetPins(t.Context(), connect.NewRequest(req))
	if err != nil || !res.Msg.GetPins()[0].GetLiving() || res.Header().Get(LagHeader) != "0" {
		t.Error(res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.feed.BatchGetPins(ctx, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeCanceled {
		t.Error(err)
	}
}

// Pins are public, as in ListPins: a caller who is bound to a user gets the same answers as all
// others, also about pins on a board that the user excludes, and of an owner who blocks the user. A
// caller with another role is refused.
func TestBatchGetPinsOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(
		createBoard("bob", "cats", "Cats"), follow("ann", "bob"), unfollowBoard("ann", "bob", "cats"),
		pinned("bob", "cats", "excluded"), pinned("dan", "", "blocked"), block("dan", "ann"), pinned("ann", "", "own"),
	)
	pins := []*skeinv1.Pin{pinNamed("bob", "excluded"), pinNamed("dan", "blocked"), pinNamed("ann", "own"), pinNamed("bob", "none")}
	want := g.as(g.tokens["reader"]).pinStates(at, pins...)
	for i, p := range want {
		if p.GetLiving() != (i < 3) {
			t.Error(p)
		}
	}
	if diff := cmp.Diff(want, g.as(g.tokens["ann"]).pinStates(at, pins...), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for token, reason := range map[string]string{"publisher": "ROLE_MISSING", "offline": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		_, err := g.as(g.tokens[token]).feed.BatchGetPins(t.Context(), connect.NewRequest(&skeinv1.BatchGetPinsRequest{Pins: pins}))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}
