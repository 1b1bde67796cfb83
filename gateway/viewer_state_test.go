package gateway

import (
	"errors"
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

func stateOfPin(owner, pin string) *skeinv1.ViewerStateKey {
	return &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pinNamed(owner, pin)}}
}

func stateOfItem(item string) *skeinv1.ViewerStateKey {
	return &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: item}}
}

func unliked(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item}}}
}

// viewerState asks about keys at a position. The answer must be of exactly that position.
func (w *world) viewerState(viewer, at string, keys ...*skeinv1.ViewerStateKey) []*skeinv1.ViewerState {
	w.t.Helper()
	res := ask(w, w.feed.BatchGetViewerState, &skeinv1.BatchGetViewerStateRequest{ViewerId: viewer, Keys: keys, AtLeast: at})
	if res.GetPosition() != at {
		w.t.Errorf("BatchGetViewerState: got position %s, want %s", res.GetPosition(), at)
	}
	return res.GetStates()
}

// withAllStores gives the world the stores of feeds, seen items and counters.
func withAllStores(o *worldOptions) {
	withFeeds(o)
	withSeen(o)
}

func TestBatchGetViewerState(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		// ann follows bob, a board of cid, and eve, who blocks ann.
		createBoard("cid", "cats", "Cats"),
		follow("ann", "bob"),
		followBoard("ann", "cid", "cats"),
		follow("ann", "eve"),
		block("eve", "ann"),

		showing("bob", "b1", "video"),
		pinned("bob", "", "b2"),
		pinned("cid", "cats", "c1"),
		pinned("dan", "", "d1"),
		pinned("eve", "", "e1"),
		pinned("ann", "", "a1"),
		pinned("bob", "", "ended"),
		liked("ann", "ended"),
		unpinned("bob", "ended"),

		liked("ann", "video"),
		liked("ann", "c1"),
		unliked("ann", "c1"),
		liked("bob", "d1"),
		liked("ann", "alone"),

		played("ann", "video"),
		played("ann", "alone"),
		played("bob", "b2"),
		served("ann", "c1", "video"),
		served("bob", "d1"),
		history(played("ann", "e1"), 1, 1),

		unfollowBoard("ann", "bob", "trips"),
		pinned("bob", "trips", "t1"),
	)

	const onBoard, excluded = skeinv1.FollowKind_FOLLOW_KIND_BOARD, skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED
	keys := []*skeinv1.ViewerStateKey{
		stateOfPin("bob", "b1"),
		stateOfItem("alone"),
		stateOfPin("cid", "c1"),
		stateOfPin("bob", "ended"),
		stateOfPin("dan", "d1"),
		stateOfPin("nobody", "p"),
		stateOfItem("nothing"),
		stateOfPin("eve", "e1"),
		stateOfPin("ann", "a1"),
		stateOfPin("bob", "b2"),
		stateOfItem("video"),
		stateOfPin("bob", "b1"),
		stateOfPin("bob", "t1"),
	}
	want := []*skeinv1.ViewerState{
		{ItemId: "video", Reactions: []string{"like"}, Seen: true, Served: true, Following: explicit, FollowingBoard: explicit},
		{ItemId: "alone", Reactions: []string{"like"}, Seen: true},
		{ItemId: "c1", Seen: true, Served: true, Following: implicit, FollowingBoard: onBoard},
		{Following: explicit},
		{ItemId: "d1"},
		{},
		{ItemId: "nothing"},
		{ItemId: "e1", Seen: true},
		{ItemId: "a1"},
		{ItemId: "b2", Following: explicit, FollowingBoard: explicit},
		{ItemId: "video", Reactions: []string{"like"}, Seen: true, Served: true},
		{ItemId: "video", Reactions: []string{"like"}, Seen: true, Served: true, Following: explicit, FollowingBoard: explicit},
		{ItemId: "t1", Following: explicit, FollowingBoard: excluded},
	}
	if diff := cmp.Diff(want, w.viewerState("ann", at, keys...), protocmp.Transform()); diff != "" {
		t.Errorf("states of ann (-want +got):\n%s", diff)
	}
	if n := w.count("skein_seen_filters_total", "by", "viewer_state"); n != 1 {
		t.Errorf("metric of filters: got %v, want 1", n)
	}

	// The request says what counts as seen, as a request of FilterSeen does: its window, and
	// whether serves count. Whether an item was served does not depend on that.
	for name, c := range map[string]struct {
		req    *skeinv1.BatchGetViewerStateRequest
		c1Seen bool
		e1Seen bool
	}{
		"plays only": {&skeinv1.BatchGetViewerStateRequest{IgnoreServed: true}, false, true},
		"this month": {&skeinv1.BatchGetViewerStateRequest{WindowMonths: 1}, true, false},
	} {
		c.req.ViewerId = "ann"
		c.req.AtLeast = at
		c.req.Keys = []*skeinv1.ViewerStateKey{stateOfPin("cid", "c1"), stateOfItem("e1")}
		states := ask(w, w.feed.BatchGetViewerState, c.req).GetStates()
		if states[0].GetSeen() != c.c1Seen || states[1].GetSeen() != c.e1Seen || !states[0].GetServed() {
			t.Errorf("%s: got %v, want c1 seen: %v and served, e1 seen: %v", name, states, c.c1Seen, c.e1Seen)
		}
	}

	// For a user without events, the states have only the items.
	var wantItems []*skeinv1.ViewerState
	for _, state := range want {
		wantItems = append(wantItems, &skeinv1.ViewerState{ItemId: state.GetItemId()})
	}
	if diff := cmp.Diff(wantItems, w.viewerState("nobody", at, keys...), protocmp.Transform()); diff != "" {
		t.Errorf("states of a user without events (-want +got):\n%s", diff)
	}

	// A pin that does not exist has no item, so the seen store is not asked.
	filters := w.count("skein_seen_filters_total", "by", "viewer_state")
	if got := w.viewerState("ann", at, stateOfPin("nobody", "p")); got[0].GetItemId() != "" {
		t.Errorf("state of a pin that does not exist: got %v, want no item", got[0])
	}
	if n := w.count("skein_seen_filters_total", "by", "viewer_state"); n != filters {
		t.Errorf("metric of filters after a pin that does not exist: got %v, want %v", n, filters)
	}
}

// likes reports whether a viewer likes an item.
func likes(s *skeinv1.ViewerState) bool { return slices.Contains(s.GetReactions(), "like") }

// TestViewerStateHasOwnReactions checks that a state names all kinds of the viewer's own reactions
// to an item, including private ones, and nobody else's.
func TestViewerStateHasOwnReactions(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		reacted("ann", "i", "save"), reacted("ann", "i", "_bookmark"), liked("ann", "i"), reacted("bob", "i", "wow"), reacted("ann", "j", "save"),
		unreacted("ann", "j", "save"),
	)
	got := w.viewerState("ann", at, stateOfItem("i"), stateOfItem("j"))
	want := []*skeinv1.ViewerState{{ItemId: "i", Reactions: []string{"_bookmark", "like", "save"}}, {ItemId: "j"}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// TestLikesOfViewers checks that the states have exactly the likes that BatchGetCounters counts,
// also when an import brings an older like, and until the user is deleted.
func TestLikesOfViewers(t *testing.T) {
	w := newWorld(t, withAllStores)
	importedLate := history(liked("ann", "back"), 1, 1)
	at := w.publish(unliked("ann", "back"), liked("ann", "i"), importedLate, history(liked("ann", "old"), 2, 1))
	likesAt := func(at string) (got []bool) {
		for _, s := range w.viewerState("ann", at, stateOfItem("back"), stateOfItem("i"), stateOfItem("old")) {
			got = append(got, likes(s))
		}
		return got
	}

	if got, want := likesAt(at), []bool{false, true, true}; !slices.Equal(got, want) {
		t.Errorf("likes of the items: got %v, want %v", got, want)
	}
	var counts []uint32
	for _, c := range w.countersOf(at, countsOfItem("back"), countsOfItem("i"), countsOfItem("old")) {
		counts = append(counts, likesOf(c))
	}
	if want := []uint32{0, 1, 1}; !slices.Equal(counts, want) {
		t.Errorf("numbers of likes: got %v, want %v", counts, want)
	}

	at = w.publish(deletedUser("ann"))
	if got, want := likesAt(at), []bool{false, false, false}; !slices.Equal(got, want) {
		t.Errorf("likes of the items after the user was deleted: got %v, want %v", got, want)
	}
}

// TestViewerStateOfManyKeys checks that a call may ask for a thousand keys.
func TestViewerStateOfManyKeys(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "p"), served("ann", "q"))
	keys := make([]*skeinv1.ViewerStateKey, 1000)
	for i := range keys {
		switch i % 3 {
		case 0:
			keys[i] = stateOfPin("bob", "p")
		case 1:
			keys[i] = stateOfItem("q")
		case 2:
			keys[i] = stateOfPin(strconv.Itoa(i), "p")
		}
	}

	states := w.viewerState("ann", at, keys...)
	if len(states) != len(keys) {
		t.Fatalf("got %d states, want %d", len(states), len(keys))
	}
	for i, s := range states {
		isLikedPin, isServedItem, isNothing := i%3 == 0, i%3 == 1, i%3 == 2
		if likes(s) != isLikedPin || s.GetServed() != isServedItem || (s.GetItemId() == "") != isNothing || (s.GetFollowing() != 0) != isLikedPin {
			t.Errorf("key %d, %v: got state %v", i, keys[i], s)
		}
	}
}

func TestViewerStateBadInput(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(pinned("bob", "", "p"))
	good := []*skeinv1.ViewerStateKey{stateOfPin("bob", "p")}
	for name, c := range map[string]struct {
		req           *skeinv1.BatchGetViewerStateRequest
		reason, field string
	}{
		"no viewer": {&skeinv1.BatchGetViewerStateRequest{Keys: good, AtLeast: at}, "INVALID_FIELD", "viewer_id"},
		"none":      {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann"}, "INVALID_FIELD", "keys"},
		"too many":  {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: slices.Repeat(good, 1001)}, "INVALID_FIELD", "keys"},
		"an empty key": {
			&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], &skeinv1.ViewerStateKey{})}, "INVALID_FIELD", "keys[1].target",
		},
		"no pin": {
			&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], stateOfPin("bob", ""))}, "INVALID_FIELD", "keys[1].pin.pin_id",
		},
		"a space": {
			&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], stateOfItem("a b"))}, "INVALID_FIELD", "keys[1].item_id",
		},
		"negative window": {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: good, WindowMonths: -1}, "INVALID_FIELD", "window_months"},
		"no position":     {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: good, AtLeast: "x"}, "INVALID_POSITION", "at_least"},
		"beyond the log": {
			&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: good, AtLeast: w.log.Position(99).String()}, "INVALID_POSITION", "at_least",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestHandCheckOfViewerState checks that the hand-written validation refuses exactly the requests
// that the rules in the proto file and the rules for ids refuse.
func TestHandCheckOfViewerState(t *testing.T) {
	rules, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}

	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	key := rapid.Custom(func(t *rapid.T) *skeinv1.ViewerStateKey {
		switch rapid.IntRange(0, 2).Draw(t, "target") {
		case 0:
			return &skeinv1.ViewerStateKey{}
		case 1:
			return stateOfPin(id.Draw(t, "owner"), id.Draw(t, "pin"))
		}
		return stateOfItem(id.Draw(t, "item"))
	})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.BatchGetViewerStateRequest{
			ViewerId:     id.Draw(t, "viewer"),
			Keys:         rapid.SliceOfN(key, 0, 3).Draw(t, "keys"),
			WindowMonths: rapid.SampledFrom([]int32{-1, 0, 1, 1<<31 - 1}).Draw(t, "window"),
			AtLeast:      rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}

		// Empty ids in keys are left to the rules of the proto file.
		wantRefused := len(rules.Check(req)) > 0 || events.ValidateID(req.GetViewerId()) != nil
		for _, k := range req.GetKeys() {
			for _, id := range []string{k.GetItemId(), k.GetPin().GetOwnerId(), k.GetPin().GetPinId()} {
				if id != "" && events.ValidateID(id) != nil {
					wantRefused = true
				}
			}
		}
		if got := feedservice.ValidateBatchGetViewerState(req); (len(got) > 0) != wantRefused {
			t.Fatalf("by hand: got violations %v, refused by the rules: %v, request %v", got, wantRefused, req)
		}
	})
}

// TestViewerStateBehind lets one of the four stores be behind the others. An answer must have the
// position of that store, and a request of a later position must wait for it.
func TestViewerStateBehind(t *testing.T) {
	for _, behind := range []string{"graph", "inbox", "seen", "counters"} {
		t.Run(behind, func(t *testing.T) {
			w := newWorld(t, withAllStores, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
			first := w.publish(pinned("bob", "", "old"))
			second := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "old"), played("ann", "old"))

			// The store that is behind folds only the first of two envelopes.
			envelopes := w.envelopes(2)
			for name, store := range map[string]interface {
				Fold(envs []*events.Envelope) error
			}{
				"graph": w.store.Serving(), "inbox": w.inbox.Serving(), "seen": w.seen.Serving(), "counters": w.counters.Serving(),
			} {
				count := 2
				if name == behind {
					count = 1
				}
				if err := store.Fold(envelopes[:count]); err != nil {
					t.Fatal(err)
				}
			}

			req := &skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: []*skeinv1.ViewerStateKey{stateOfPin("bob", "old"), stateOfPin("bob", "p")}}
			res, err := w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			if res.Msg.GetPosition() != first {
				t.Errorf("got position %s, want %s", res.Msg.GetPosition(), first)
			}
			if lag := res.Header().Get(LagHeader); lag != "1" {
				t.Errorf("%s: got %q, want 1", LagHeader, lag)
			}

			// Each store contributes one part of the state, which is missing if the store is
			// behind.
			oldPin, newPin := res.Msg.GetStates()[0], res.Msg.GetStates()[1]
			for _, part := range []struct {
				name, store string
				isThere     bool
			}{
				{"follow", "graph", oldPin.GetFollowing() != 0},
				{"new pin", "inbox", newPin.GetItemId() != ""},
				{"play", "seen", oldPin.GetSeen()},
				{"like", "counters", likes(oldPin)},
			} {
				if wantThere := part.store != behind; part.isThere != wantThere {
					t.Errorf("%s is in the answer: got %v, want %v", part.name, part.isThere, wantThere)
				}
			}

			req.AtLeast = second
			_, err = w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
		})
	}
}

// TestViewerStateOfCallers checks that a caller who is bound to a user may ask only for that user,
// because it is private what a viewer likes and has seen.
func TestViewerStateOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "p"), liked("bob", "p"))
	want := []*skeinv1.ViewerState{{ItemId: "p", Reactions: []string{"like"}, Following: explicit, FollowingBoard: explicit}}
	for _, token := range []string{"reader", "ann"} {
		if diff := cmp.Diff(want, g.as(g.tokens[token]).viewerState("ann", at, stateOfPin("bob", "p")), protocmp.Transform()); diff != "" {
			t.Errorf("caller %s: states (-want +got):\n%s", token, diff)
		}
	}

	req := &skeinv1.BatchGetViewerStateRequest{ViewerId: "bob", Keys: []*skeinv1.ViewerStateKey{stateOfPin("bob", "p")}}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		t.Run("refused "+token, func(t *testing.T) {
			_, err := g.as(g.tokens[token]).feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodePermissionDenied, reason, "")
		})
	}
}

// TestViewerStateWithoutSeen checks that, without one of the stores, the error names all stores
// that the call needs, and the other calls of the service are answered.
func TestViewerStateWithoutSeen(t *testing.T) {
	w := newWorld(t, withFeeds)
	_, err := w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(&skeinv1.BatchGetViewerStateRequest{}))
	wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
	if want := "the inbox, seen and counters projections"; err == nil || !strings.Contains(errors.Unwrap(err).Error(), want) {
		t.Errorf("got error %v, want one that contains %q", err, want)
	}
	w.pinStates(w.publish(pinned("bob", "", "p")), pinNamed("bob", "p"))
}
