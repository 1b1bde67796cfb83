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

// viewerState asks about keys at a position.
func (w *world) viewerState(viewer, at string, keys ...*skeinv1.ViewerStateKey) []*skeinv1.ViewerState {
	w.t.Helper()
	res := ask(w, w.feed.BatchGetViewerState, &skeinv1.BatchGetViewerStateRequest{ViewerId: viewer, Keys: keys, AtLeast: at})
	if res.GetPosition() != at {
		w.t.Errorf("answered at %s, not at %s", res.GetPosition(), at)
	}
	return res.GetStates()
}

func withAllStores(o *worldOptions) {
	withFeeds(o)
	withSeen(o)
}

func TestBatchGetViewerState(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		createBoard("cid", "cats", "Cats"), follow("ann", "bob"), followBoard("ann", "cid", "cats"), follow("ann", "eve"), block("eve", "ann"),
		showing("bob", "b1", "video"), pinned("bob", "", "b2"), pinned("cid", "cats", "c1"), pinned("dan", "", "d1"), pinned("eve", "", "e1"),
		pinned("ann", "", "a1"), pinned("bob", "", "ended"), liked("ann", "ended"), unpinned("bob", "ended"),
		liked("ann", "video"), liked("ann", "c1"), unliked("ann", "c1"), liked("bob", "d1"), liked("ann", "alone"),
		played("ann", "video"), played("ann", "alone"), played("bob", "b2"), served("ann", "c1", "video"), served("bob", "d1"),
		history(played("ann", "e1"), 1, 1), unfollowBoard("ann", "bob", "trips"), pinned("bob", "trips", "t1"),
	)
	explicit, implicit := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT
	onBoard, excluded := skeinv1.FollowKind_FOLLOW_KIND_BOARD, skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED
	keys := []*skeinv1.ViewerStateKey{
		stateOfPin("bob", "b1"), stateOfItem("alone"), stateOfPin("cid", "c1"), stateOfPin("bob", "ended"), stateOfPin("dan", "d1"),
		stateOfPin("nobody", "p"), stateOfItem("nothing"), stateOfPin("eve", "e1"), stateOfPin("ann", "a1"), stateOfPin("bob", "b2"),
		stateOfItem("video"), stateOfPin("bob", "b1"), stateOfPin("bob", "t1"),
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
		t.Error(diff)
	}
	if w.count("skein_seen_filters_total", "by", "viewer_state") != 1 {
		t.Error("the question is not counted")
	}
	// The request says what counts as seen, as that of FilterSeen does: its window, and whether
	// serves count. Serves do not change.
	for _, c := range []struct {
		req  *skeinv1.BatchGetViewerStateRequest
		c1   bool
		e1   bool
		what string
	}{
		{&skeinv1.BatchGetViewerStateRequest{IgnoreServed: true}, false, true, "plays only"},
		{&skeinv1.BatchGetViewerStateRequest{WindowMonths: 1}, true, false, "this month"},
	} {
		c.req.ViewerId, c.req.AtLeast, c.req.Keys = "ann", at, []*skeinv1.ViewerStateKey{stateOfPin("cid", "c1"), stateOfItem("e1")}
		got := ask(w, w.feed.BatchGetViewerState, c.req).GetStates()
		if got[0].GetSeen() != c.c1 || got[1].GetSeen() != c.e1 || !got[0].GetServed() {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	// A user without events has an empty state for all of them; pins that do not live cause no
	// query to the seen store.
	for i, s := range w.viewerState("nobody", at, keys...) {
		if diff := cmp.Diff(&skeinv1.ViewerState{ItemId: want[i].GetItemId()}, s, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	asked := w.count("skein_seen_filters_total", "by", "viewer_state")
	if got := w.viewerState("ann", at, stateOfPin("nobody", "p")); got[0].GetItemId() != "" || w.count("skein_seen_filters_total", "by", "viewer_state") != asked {
		t.Error(got)
	}
}

// likes reports whether a viewer likes an item.
func likes(s *skeinv1.ViewerState) bool { return slices.Contains(s.GetReactions(), "like") }

// TestViewerStateHasOwnReactions: a viewer has all kinds of the own reactions to an item by name,
// private ones included, and nobody else's.
func TestViewerStateHasOwnReactions(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		reacted("ann", "i", "save"), reacted("ann", "i", "_bookmark"), liked("ann", "i"), reacted("bob", "i", "wow"), reacted("ann", "j", "save"),
		unreacted("ann", "j", "save"),
	)
	got := w.viewerState("ann", at, stateOfItem("i"), stateOfItem("j"))
	want := []*skeinv1.ViewerState{{ItemId: "i", Reactions: []string{"_bookmark", "like", "save"}}, {ItemId: "j"}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-expected +got)\n%s", diff)
	}
}

// TestLikesOfViewers: a like is what BatchGetCounters counts, whenever history arrives, and until
// the user ends.
func TestLikesOfViewers(t *testing.T) {
	w := newWorld(t, withAllStores)
	late := history(liked("ann", "back"), 1, 1)
	at := w.publish(unliked("ann", "back"), liked("ann", "i"), late, history(liked("ann", "old"), 2, 1))
	liked := func(at string) (got []bool) {
		for _, s := range w.viewerState("ann", at, stateOfItem("back"), stateOfItem("i"), stateOfItem("old")) {
			got = append(got, likes(s))
		}
		return got
	}
	if got := liked(at); !slices.Equal(got, []bool{false, true, true}) {
		t.Error(got)
	}
	for i, c := range w.countersOf(at, countsOfItem("back"), countsOfItem("i"), countsOfItem("old")) {
		if likesOf(c) != []uint32{0, 1, 1}[i] {
			t.Errorf("item %d: %v", i, c)
		}
	}
	if got := liked(w.publish(deletedUser("ann"))); !slices.Equal(got, []bool{false, false, false}) {
		t.Error("after the user ended: ", got)
	}
}

// A call takes a thousand keys.
func TestViewerStateOfManyKeys(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "p"), served("ann", "q"))
	keys := make([]*skeinv1.ViewerStateKey, 1000)
	for i := range keys {
		keys[i] = []*skeinv1.ViewerStateKey{stateOfPin("bob", "p"), stateOfItem("q"), stateOfPin(strconv.Itoa(i), "p")}[i%3]
	}
	for i, s := range w.viewerState("ann", at, keys...) {
		if likes(s) != (i%3 == 0) || s.GetServed() != (i%3 == 1) || (s.GetItemId() == "") != (i%3 == 2) || (s.GetFollowing() != 0) != (i%3 == 0) {
			t.Errorf("key %d: %v", i, s)
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
		"no viewer":       {&skeinv1.BatchGetViewerStateRequest{Keys: good, AtLeast: at}, "INVALID_FIELD", "viewer_id"},
		"none":            {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann"}, "INVALID_FIELD", "keys"},
		"too many":        {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: slices.Repeat(good, 1001)}, "INVALID_FIELD", "keys"},
		"an empty key":    {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], &skeinv1.ViewerStateKey{})}, "INVALID_FIELD", "keys[1].target"},
		"no pin":          {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], stateOfPin("bob", ""))}, "INVALID_FIELD", "keys[1].pin.pin_id"},
		"a space":         {&skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: append(good[:1:1], stateOfItem("a b"))}, "INVALID_FIELD", "keys[1].item_id"},
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

// The check by hand refuses exactly what the rules of the proto and the rules of ids refuse.
func TestHandCheckOfViewerState(t *testing.T) {
	r, err := request.NewRules()
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
			ViewerId: id.Draw(t, "viewer"), Keys: rapid.SliceOfN(key, 0, 3).Draw(t, "keys"),
			WindowMonths: rapid.SampledFrom([]int32{-1, 0, 1, 1<<31 - 1}).Draw(t, "window"),
			AtLeast:      rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}
		bad := len(r.Check(req)) > 0 || events.ValidateID(req.GetViewerId()) != nil
		for _, k := range req.GetKeys() {
			for _, id := range []string{k.GetItemId(), k.GetPin().GetOwnerId(), k.GetPin().GetPinId()} {
				bad = bad || id != "" && events.ValidateID(id) != nil
			}
		}
		if got := feedservice.ValidateBatchGetViewerState(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
}

// TestViewerStateBehind: an answer names the least of the positions that were read, whichever store
// is behind, and waits for all four.
func TestViewerStateBehind(t *testing.T) {
	for _, behind := range []string{"graph", "inbox", "seen", "counters"} {
		t.Run(behind, func(t *testing.T) {
			w := newWorld(t, withAllStores, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
			first := w.publish(pinned("bob", "", "old"))
			second := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "old"), played("ann", "old"))
			envelopes := w.envelopes(2)
			for name, store := range map[string]interface {
				Fold(envs []*events.Envelope) error
			}{
				"graph": w.store.Serving(), "inbox": w.inbox.Serving(), "seen": w.seen.Serving(), "counters": w.counters.Serving(),
			} {
				upTo := 2
				if name == behind {
					upTo = 1
				}
				if err := store.Fold(envelopes[:upTo]); err != nil {
					t.Fatal(err)
				}
			}
			req := &skeinv1.BatchGetViewerStateRequest{ViewerId: "ann", Keys: []*skeinv1.ViewerStateKey{stateOfPin("bob", "old"), stateOfPin("bob", "p")}}
			res, err := w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			state := res.Msg.GetStates()[0]
			if res.Msg.GetPosition() != first || res.Header().Get(LagHeader) != "1" || (state.GetFollowing() == 0) != (behind == "graph") ||
				likes(state) != (behind != "counters") || state.GetSeen() != (behind != "seen") ||
				(res.Msg.GetStates()[1].GetItemId() == "") != (behind == "inbox") {
				t.Errorf("%v, %s behind", res.Msg, res.Header().Get(LagHeader))
			}
			req.AtLeast = second
			_, err = w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
		})
	}
}

// What a viewer likes and has seen is the viewer's own: a caller who is bound to a user asks for
// that user only.
func TestViewerStateOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"), liked("ann", "p"), liked("bob", "p"))
	explicit := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
	want := []*skeinv1.ViewerState{{ItemId: "p", Reactions: []string{"like"}, Following: explicit, FollowingBoard: explicit}}
	for _, token := range []string{"reader", "ann"} {
		if diff := cmp.Diff(want, g.as(g.tokens[token]).viewerState("ann", at, stateOfPin("bob", "p")), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", token, diff)
		}
	}
	req := &skeinv1.BatchGetViewerStateRequest{ViewerId: "bob", Keys: []*skeinv1.ViewerStateKey{stateOfPin("bob", "p")}}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		_, err := g.as(g.tokens[token]).feed.BatchGetViewerState(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}

// Without one of the stores, the error names those that the call needs, and the other calls of the
// service are answered.
func TestViewerStateWithoutSeen(t *testing.T) {
	w := newWorld(t, withFeeds)
	_, err := w.feed.BatchGetViewerState(t.Context(), connect.NewRequest(&skeinv1.BatchGetViewerStateRequest{}))
	wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
	if err == nil || !strings.Contains(errors.Unwrap(err).Error(), "the inbox, seen and counters projections") {
		t.Error(err)
	}
	w.pinStates(w.publish(pinned("bob", "", "p")), pinNamed("bob", "p"))
}
