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

// movedTo returns the event that moves a pin to another board.
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

// pinStates asks for pins at a position. The answer must be of exactly that position.
func (w *world) pinStates(at string, pins ...*skeinv1.Pin) []*skeinv1.PinState {
	w.t.Helper()
	res := ask(w, w.feed.BatchGetPins, &skeinv1.BatchGetPinsRequest{Pins: pins, AtLeast: at})
	if res.GetPosition() != at {
		w.t.Errorf("BatchGetPins: got position %s, want %s", res.GetPosition(), at)
	}
	return res.GetPins()
}

// TestBatchGetPins checks that the answer has the pins in the order of the request. Each pin is as
// ListPins shows it, or is not living.
func TestBatchGetPins(t *testing.T) {
	w := newWorld(t, withFeeds)

	withBytes := pinned("bob", "cats", "bytes")
	withBytes.GetPinCreated().Attributes = []byte("16:9")
	at := w.publish(
		createBoard("bob", "cats", "Cats"),
		createBoard("bob", "dogs", "Dogs"),
		createBoard("bob", "gone", "Gone"),

		withBytes,
		pinned("bob", "", "plain"),
		pinned("bob", "cats", "moved"),
		showing("bob", "shows", "video"),
		repinned("cid", "again", "video", "bob", "shows"),
		repinned("cid", "of-dan", "dans", "dan", "dans"),
		pinned("bob", "cats", "ended"),
		pinned("bob", "gone", "on-gone"),
		pinned("bob", "gone", "saved"),
		pinned("dan", "", "dans"),

		// The pin that leaves the board before the board is deleted lives on.
		movedTo("bob", "moved", "dogs"),
		movedTo("bob", "saved", ""),
		unpinned("bob", "ended"),
		deletedBoard("bob", "gone"),
		deletedUser("dan"),
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
		t.Errorf("pins (-want +got):\n%s", diff)
	}

	// Exactly the living pins are in the lists of their owners, with the same time of creation.
	listed := map[string]*skeinv1.FeedEntry{}
	for _, owner := range []string{"bob", "cid", "dan"} {
		list := pinsOf(owner)
		list.AtLeast = at
		for _, entry := range ask(w, w.feed.ListPins, list).GetEntries() {
			listed[entry.GetOwnerId()+"/"+entry.GetPinId()] = entry
		}
	}
	if len(listed) != 7 {
		t.Errorf("ListPins: got %d pins of all owners, want 7", len(listed))
	}
	for _, state := range got {
		entry := listed[state.GetOwnerId()+"/"+state.GetPinId()]
		if state.GetLiving() != (entry != nil) {
			t.Errorf("got pin state %v, but ListPins has %v", state, entry)
		}
		if (state.GetCreateTime() != nil) != state.GetLiving() {
			t.Errorf("got pin state %v, want a create time exactly if the pin is living", state)
		}
		if diff := cmp.Diff(entry.GetCreateTime(), state.GetCreateTime(), protocmp.Transform()); diff != "" {
			t.Errorf("create time of %s (-ListPins +BatchGetPins):\n%s", state.GetPinId(), diff)
		}
	}

	// A pin whose id is used again after its end has a new time of creation.
	at = w.publish(pinned("bob", "dogs", "ended"))
	states := w.pinStates(at, pinNamed("bob", "ended"), pinNamed("bob", "plain"))
	recreated, older := states[0], states[1]
	if !recreated.GetLiving() || recreated.GetBoardId() != "dogs" {
		t.Errorf("recreated pin: got %v, want a living pin on the board dogs", recreated)
	}
	if created := recreated.GetCreateTime().AsTime(); !created.After(older.GetCreateTime().AsTime()) {
		t.Errorf("recreated pin: got create time %v, want a time after %v", created, older.GetCreateTime().AsTime())
	}
}

// TestEditChangesAttributesAndNoOrder checks that an edit is in the page, the list and the state of
// the pin, with its time. The pin keeps its place and its time of creation, and does not count as
// newer. A pin that is created again has nothing of the edit.
func TestEditChangesAttributesAndNoOrder(t *testing.T) {
	w := newWorld(t, withFeeds)
	first := pinned("bob", "", "first")
	first.GetPinCreated().Attributes = []byte("old")
	at := w.publish(follow("ann", "bob"), first, pinned("bob", "", "second"))
	before := ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})

	at = w.publish(editedPin("bob", "first", "older"), editedPin("bob", "first", "new"), editedPin("bob", "never", "new"))
	newer := ask(w, w.feed.CountNewer, &skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: before.GetNewestToken(), AtLeast: at})
	if newer.GetCount() != 0 {
		t.Errorf("CountNewer after edits: got %d, want 0", newer.GetCount())
	}

	// The feed and the list have the same entries as before, except for the attributes.
	want := before.GetEntries()
	want[1].Attributes = []byte("new")
	list := pinsOf("bob")
	list.AtLeast = at
	page := ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetEntries()
	for name, entries := range map[string][]*skeinv1.FeedEntry{
		"feed": page,
		"pins": ask(w, w.feed.ListPins, list).GetEntries(),
	} {
		withoutEditTime := protocmp.IgnoreFields(&skeinv1.FeedEntry{}, "edit_time")
		if diff := cmp.Diff(want, entries, protocmp.Transform(), withoutEditTime); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", name, diff)
		}

		unedited, edited := entries[0], entries[1]
		if !edited.GetEditTime().AsTime().After(edited.GetCreateTime().AsTime()) {
			t.Errorf("%s: got edit time %v, want a time after %v", name, edited.GetEditTime(), edited.GetCreateTime())
		}
		if unedited.GetEditTime() != nil {
			t.Errorf("%s: got edit time %v of a pin without edits, want none", name, unedited.GetEditTime())
		}
	}

	state := w.pinStates(at, pinNamed("bob", "first"))[0]
	if string(state.GetAttributes()) != "new" {
		t.Errorf("pin state: got attributes %q, want %q", state.GetAttributes(), "new")
	}
	if diff := cmp.Diff(page[1].GetEditTime(), state.GetEditTime(), protocmp.Transform()); diff != "" {
		t.Errorf("edit time (-page +pin state):\n%s", diff)
	}

	at = w.publish(unpinned("bob", "first"), pinned("bob", "", "first"))
	recreated := w.pinStates(at, pinNamed("bob", "first"))[0]
	if !recreated.GetLiving() || recreated.GetEditTime() != nil || len(recreated.GetAttributes()) > 0 {
		t.Errorf("recreated pin: got %v, want a living pin that was not edited", recreated)
	}
}

// TestBatchGetManyPins checks that a call may ask for a thousand pins.
func TestBatchGetManyPins(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(pinned("bob", "", "p"), showing("cid", "p", "q"))

	// Two pins that exist alternate with pins that do not.
	pins := make([]*skeinv1.Pin, 1000)
	for i := range pins {
		switch i % 3 {
		case 0:
			pins[i] = pinNamed("bob", "p")
		case 1:
			pins[i] = pinNamed("cid", "p")
		case 2:
			pins[i] = pinNamed("dan", strconv.Itoa(i))
		}
	}

	states := w.pinStates(at, pins...)
	if len(states) != len(pins) {
		t.Fatalf("got %d pins, want %d", len(states), len(pins))
	}
	for i, state := range states {
		wantItem := []string{"p", "q", ""}[i%3]
		if state.GetItemId() != wantItem || state.GetOwnerId() != pins[i].GetOwnerId() || state.GetPinId() != pins[i].GetPinId() {
			t.Errorf("pin %d: got %v, want the pin %v with item %q", i, state, pins[i], wantItem)
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

// TestHandCheckOfBatchGetPins checks that the hand-written validation refuses exactly the requests
// that the rules in the proto file and the rules for ids refuse.
func TestHandCheckOfBatchGetPins(t *testing.T) {
	rules, err := request.NewRules()
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

		wantRefused := len(rules.Check(req)) > 0
		for _, p := range req.GetPins() {
			if events.ValidateID(p.GetOwnerId()) != nil || events.ValidateID(p.GetPinId()) != nil {
				wantRefused = true
			}
		}
		if got := feedservice.ValidateBatchGetPins(req); (len(got) > 0) != wantRefused {
			t.Fatalf("by hand: got violations %v, refused by the rules: %v, request %v", got, wantRefused, req)
		}
	})

	// The numbers of pins are too large to be drawn.
	for count, wantRefused := range map[int]bool{0: true, 1: false, 1000: false, 1001: true} {
		req := &skeinv1.BatchGetPinsRequest{Pins: slices.Repeat([]*skeinv1.Pin{pinNamed("bob", "p")}, count)}
		if got := feedservice.ValidateBatchGetPins(req); (len(got) > 0) != wantRefused {
			t.Errorf("%d pins by hand: got violations %v, want refused: %v", count, got, wantRefused)
		}
		if got := rules.Check(req); (len(got) > 0) != wantRefused {
			t.Errorf("%d pins by the rules: got violations %v, want refused: %v", count, got, wantRefused)
		}
	}
}

// TestBatchGetPinsAtLeast checks that a process that is behind the log answers from the state that
// it has if the request names no position, and otherwise waits for the position.
func TestBatchGetPinsAtLeast(t *testing.T) {
	w := newWorld(t, withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	at := w.publish(pinned("bob", "", "p"))

	req := &skeinv1.BatchGetPinsRequest{Pins: []*skeinv1.Pin{pinNamed("bob", "p")}}
	if res := ask(w, w.feed.BatchGetPins, req); res.GetPins()[0].GetLiving() || res.GetPosition() == at {
		t.Errorf("without a position: got %v, want the state before the pin", res)
	}

	req.AtLeast = at
	_, err := w.feed.BatchGetPins(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")

	w.fold()
	<-w.inboxReady
	res, err := w.feed.BatchGetPins(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatalf("after folding: %v", err)
	}
	if !res.Msg.GetPins()[0].GetLiving() {
		t.Errorf("after folding: got %v, want a living pin", res.Msg)
	}
	if lag := res.Header().Get(LagHeader); lag != "0" {
		t.Errorf("after folding: got %s %q, want 0", LagHeader, lag)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.feed.BatchGetPins(ctx, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("with a canceled context: got %v, want code %v", err, connect.CodeCanceled)
	}
}

// TestBatchGetPinsOfCallers checks that pins are public, as in ListPins. A caller who is bound to a
// user gets the same answers as all others, also about pins on a board that the user excludes, and
// of an owner who blocks the user. A caller with another role is refused.
func TestBatchGetPinsOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(
		createBoard("bob", "cats", "Cats"), follow("ann", "bob"), unfollowBoard("ann", "bob", "cats"),
		pinned("bob", "cats", "excluded"), pinned("dan", "", "blocked"), block("dan", "ann"), pinned("ann", "", "own"),
	)

	// The application sees all pins but the last one, which does not exist.
	pins := []*skeinv1.Pin{pinNamed("bob", "excluded"), pinNamed("dan", "blocked"), pinNamed("ann", "own"), pinNamed("bob", "none")}
	want := g.as(g.tokens["reader"]).pinStates(at, pins...)
	if len(want) != len(pins) {
		t.Fatalf("application: got %d pins, want %d", len(want), len(pins))
	}
	for i, state := range want {
		if wantLiving := i < 3; state.GetLiving() != wantLiving {
			t.Errorf("application: got %v, want living: %v", state, wantLiving)
		}
	}

	if diff := cmp.Diff(want, g.as(g.tokens["ann"]).pinStates(at, pins...), protocmp.Transform()); diff != "" {
		t.Errorf("pins (-as the application sees them +as the user sees them):\n%s", diff)
	}
	for _, token := range []string{"publisher", "offline", "admin"} {
		t.Run("refused "+token, func(t *testing.T) {
			_, err := g.as(g.tokens[token]).feed.BatchGetPins(t.Context(), connect.NewRequest(&skeinv1.BatchGetPinsRequest{Pins: pins}))
			wantError(t, err, connect.CodePermissionDenied, "ROLE_MISSING", "")
		})
	}
}
