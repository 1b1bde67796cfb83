package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// likes returns the lister for the items that a user likes.
func (w *world) likes(user string) lister { return w.reactions(user, "") }

// reactions returns the lister for the items to which a user reacted with a kind. An empty kind
// means likes.
func (w *world) reactions(user, kind string) lister {
	return list(w.counterClient.ListReactions, func(size int32, token, at string) *skeinv1.ListReactionsRequest {
		return &skeinv1.ListReactionsRequest{UserId: user, Kind: kind, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListReactionsResponse) (items []string, _ int64) {
		for _, e := range r.GetEntries() {
			items = append(items, e.GetItemId())
		}
		return items, -1
	})
}

// TestListReactions checks that the list has each liked item once, the latest like first. A
// repeated like keeps its place, and a like after an unlike is a new one.
func TestListReactions(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		liked("ann", "i1"), liked("ann", "gone"), liked("ann", "i2"), liked("bob", "i3"), unliked("ann", "gone"), liked("ann", "i1"),
		liked("ann", "again"), liked("ann", "i4"), unliked("ann", "again"), liked("ann", "again"), history(liked("ann", "old"), 2, 2),
		history(liked("ann", "older"), 3, 3),
	)
	want := []string{"again", "i4", "i2", "i1", "old", "older"}
	for _, size := range []int32{1, 2, 5, 6, 1000} {
		if diff := cmp.Diff(want, w.likes("ann").all(t, size, at)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
	if items := w.likes("stranger").all(t, 1, at); len(items) != 0 {
		t.Errorf("likes of a stranger: got %v, want none", items)
	}

	// The times of the entries fall, and each item has the like in its count.
	res := ask(w, w.counterClient.ListReactions, &skeinv1.ListReactionsRequest{UserId: "ann", AtLeast: at})
	for i, e := range res.GetEntries() {
		if i > 0 && e.GetReactTime().AsTime().After(res.GetEntries()[i-1].GetReactTime().AsTime()) {
			t.Errorf("%v comes after %v, want the newest reaction first", e, res.GetEntries()[i-1])
		}
		if counts := w.countersOf(at, countsOfItem(e.GetItemId()))[0]; likesOf(counts) != 1 {
			t.Errorf("item %s: got %d likes, want 1", e.GetItemId(), likesOf(counts))
		}
	}

	// If the list changes between two pages, the next page has the items that are still liked, each
	// once, and none that was liked since (I9).
	first, err := w.likes("ann")(2, "", at)
	if err != nil {
		t.Fatal(err)
	}
	at = w.publish(unliked("ann", "i4"), unliked("ann", "i2"), liked("ann", "top"))
	rest, err := w.likes("ann")(10, first.next, at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"i1", "old", "older"}, rest.entries); diff != "" {
		t.Errorf("second page (-want +got):\n%s", diff)
	}
	if rest.position != at || rest.next != "" {
		t.Errorf("second page: got position %s and next token %q, want position %s and no token", rest.position, rest.next, at)
	}

	if items := w.likes("ann").all(t, 1, w.publish(deletedUser("ann"))); len(items) != 0 {
		t.Errorf("likes of a deleted user: got %v, want none", items)
	}
}

func TestListReactionsNamesInvalidFields(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(liked("ann", "a"), liked("ann", "b"), liked("bob", "a"), liked("bob", "b"))
	pageOfBob, err := w.likes("bob")(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req           *skeinv1.ListReactionsRequest
		reason, field string
	}{
		"no user":               {&skeinv1.ListReactionsRequest{}, "INVALID_FIELD", "user_id"},
		"a space":               {&skeinv1.ListReactionsRequest{UserId: "a b"}, "INVALID_FIELD", "user_id"},
		"too long":              {&skeinv1.ListReactionsRequest{UserId: strings.Repeat("x", 129)}, "INVALID_FIELD", "user_id"},
		"negative size":         {&skeinv1.ListReactionsRequest{UserId: "ann", PageSize: -1}, "INVALID_FIELD", "page_size"},
		"no token":              {&skeinv1.ListReactionsRequest{UserId: "ann", PageToken: "x"}, "INVALID_PAGE_TOKEN", "page_token"},
		"token of another user": {&skeinv1.ListReactionsRequest{UserId: "ann", PageToken: pageOfBob.next}, "INVALID_PAGE_TOKEN", "page_token"},
		"no position":           {&skeinv1.ListReactionsRequest{UserId: "ann", AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.counterClient.ListReactions(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestPrivateReactionsAreListedForTheirUserOnly checks that every caller may list reactions.
// Those of a private kind are only for the user who reacted, and for the application, whose
// callers are bound to no user.
func TestPrivateReactionsAreListedForTheirUserOnly(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(
		liked("ann", "i"), liked("bob", "i"), reacted("ann", "i", "_bookmark"), reacted("bob", "j", "_bookmark"))
	for _, c := range []struct {
		name, token, user, kind string
		want                    []string
	}{
		{"the application", "reader", "bob", "_bookmark", []string{"j"}},
		{"the user", "ann", "ann", "_bookmark", []string{"i"}},
		{"the user, no private kind", "ann", "ann", "", []string{"i"}},
		{"another user, no private kind", "ann", "bob", "like", []string{"i"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, g.as(g.tokens[c.token]).reactions(c.user, c.kind).all(t, 1, at)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		req := &skeinv1.ListReactionsRequest{UserId: "bob", Kind: "_bookmark"}
		_, err := g.as(g.tokens[token]).counterClient.ListReactions(context.Background(), connect.NewRequest(req))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}

// reactors returns the lister for the users who reacted to an item. An empty viewer means the
// application.
func (w *world) reactors(item, kind, viewer string) lister {
	return list(w.counterClient.ListReactors, func(size int32, token, at string) *skeinv1.ListReactorsRequest {
		return &skeinv1.ListReactorsRequest{ItemId: item, Kind: kind, ViewerId: viewer, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListReactorsResponse) (users []string, total int64) {
		for _, e := range r.GetEntries() {
			users = append(users, e.GetUserId())
		}
		if viewer != "" {
			return users, -1 // the total also counts the users whom the viewer does not see
		}
		return users, int64(r.GetTotalSize())
	})
}

// TestListReactors checks that a viewer does not see users whom a block in either direction
// separates from the viewer. The total counts them.
func TestListReactors(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		reacted("ann", "i", "save"), reacted("bob", "i", "save"), reacted("cid", "i", "save"), reacted("dan", "i", "save"),
		reacted("eve", "i", "save"), unreacted("eve", "i", "save"), liked("eve", "i"), reacted("dan", "j", "save"),
		block("ann", "bob"), block("cid", "ann"),
	)
	for _, c := range []struct {
		name, kind, viewer string
		want               []string
		total              int64
	}{
		{"the application", "save", "", []string{"dan", "cid", "bob", "ann"}, 4},
		{"a viewer with blocks", "save", "ann", []string{"dan", "ann"}, 4},
		{"a viewer who is blocked", "save", "bob", []string{"dan", "cid", "bob"}, 4},
		{"a stranger", "save", "zoe", []string{"dan", "cid", "bob", "ann"}, 4},
		{"likes", "", "ann", []string{"eve"}, 1},
		{"likes by name", "like", "", []string{"eve"}, 1},
		{"nothing", "wow", "", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int32{1, 3, 1000} {
				if diff := cmp.Diff(c.want, w.reactors("i", c.kind, c.viewer).all(t, size, at)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
			res := ask(w, w.counterClient.ListReactors, &skeinv1.ListReactorsRequest{ItemId: "i", Kind: c.kind, ViewerId: c.viewer, AtLeast: at})
			if int64(res.GetTotalSize()) != c.total || res.GetPosition() != at {
				t.Errorf("got a total of %d at %s, want %d at %s", res.GetTotalSize(), res.GetPosition(), c.total, at)
			}
		})
	}
}

func TestListReactorsNamesInvalidFields(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(liked("ann", "a"), liked("bob", "a"))
	pageForAnn, err := w.reactors("a", "", "ann")(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req           *skeinv1.ListReactorsRequest
		reason, field string
	}{
		"no item":                 {&skeinv1.ListReactorsRequest{}, "INVALID_FIELD", "item_id"},
		"a space in the viewer":   {&skeinv1.ListReactorsRequest{ItemId: "a", ViewerId: "a b"}, "INVALID_FIELD", "viewer_id"},
		"a private kind":          {&skeinv1.ListReactorsRequest{ItemId: "a", Kind: "_bookmark"}, "INVALID_FIELD", "kind"},
		"a kind of other letters": {&skeinv1.ListReactorsRequest{ItemId: "a", Kind: "Like"}, "INVALID_FIELD", "kind"},
		"token of another kind":   {&skeinv1.ListReactorsRequest{ItemId: "a", Kind: "save", PageToken: pageForAnn.next}, "INVALID_PAGE_TOKEN", "page_token"},
		"token of another viewer": {&skeinv1.ListReactorsRequest{ItemId: "a", PageToken: pageForAnn.next}, "INVALID_PAGE_TOKEN", "page_token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.counterClient.ListReactors(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestBoundCallersListReactorsAsTheirUser checks that a caller who is bound to a user must list
// reactors with this user as the viewer. With another viewer, the caller would see users who block
// the own user.
func TestBoundCallersListReactorsAsTheirUser(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(liked("bob", "i"), liked("cid", "i"), block("bob", "ann"))
	for _, c := range []struct {
		name, token, viewer string
		want                []string
	}{
		{"the application", "reader", "", []string{"cid", "bob"}},
		{"the application for a user", "reader", "ann", []string{"cid"}},
		{"the user", "ann", "ann", []string{"cid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, g.as(g.tokens[c.token]).reactors("i", "", c.viewer).all(t, 1, at)); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
		})
	}
	for _, viewer := range []string{"", "bob"} {
		req := &skeinv1.ListReactorsRequest{ItemId: "i", ViewerId: viewer}
		_, err := g.as(g.tokens["ann"]).counterClient.ListReactors(context.Background(), connect.NewRequest(req))
		wantError(t, err, connect.CodePermissionDenied, "OTHER_USER", "")
	}
}

// TestReactionsAreCountedByKind checks that the reactions to an item are counted by kind. By
// default, the answer has 16 kinds at most. Private kinds are not counted, and must not be named.
func TestReactionsAreCountedByKind(t *testing.T) {
	w := newWorld(t, withAllStores)
	evs := []*skeinv1.Event{reacted("ann", "i", "_bookmark"), reacted("ann", "i", "save"), reacted("bob", "i", "save"), liked("ann", "i")}
	for n := range 20 {
		evs = append(evs, reacted("ann", "many", fmt.Sprintf("k%02d", n)))
	}
	evs = append(evs, liked("ann", "many"))
	at := w.publish(evs...)

	count := func(kind string, n uint32) *skeinv1.ReactionCount {
		return &skeinv1.ReactionCount{Kind: kind, Count: n}
	}
	var firstOfMany []*skeinv1.ReactionCount
	for n := range 16 {
		firstOfMany = append(firstOfMany, count(fmt.Sprintf("k%02d", n), 1))
	}
	for _, c := range []struct {
		name  string
		kinds []string
		want  []*skeinv1.Counters
	}{
		{"by default", nil, []*skeinv1.Counters{
			{Reactions: []*skeinv1.ReactionCount{count("like", 1), count("save", 2)}}, {Reactions: firstOfMany}, {},
		}},
		{"by name", []string{"wow", "save", "like"}, []*skeinv1.Counters{
			{Reactions: []*skeinv1.ReactionCount{count("wow", 0), count("save", 2), count("like", 1)}},
			{Reactions: []*skeinv1.ReactionCount{count("wow", 0), count("save", 0), count("like", 1)}},
			{Reactions: []*skeinv1.ReactionCount{count("wow", 0), count("save", 0), count("like", 0)}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := ask(w, w.counterClient.BatchGetCounters, &skeinv1.BatchGetCountersRequest{
				Keys:          []*skeinv1.CounterKey{countsOfItem("i"), countsOfItem("many"), countsOfItem("nothing")},
				ReactionKinds: c.kinds, AtLeast: at,
			})
			if diff := cmp.Diff(c.want, res.GetCounters(), protocmp.Transform()); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
		})
	}

	for name, kinds := range map[string][]string{
		"a private kind": {"like", "_bookmark"}, "no kind": {"like", ""}, "other letters": {"like", "Save"},
	} {
		t.Run(name, func(t *testing.T) {
			req := &skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{countsOfItem("i")}, ReactionKinds: kinds}
			_, err := w.counterClient.BatchGetCounters(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "reaction_kinds[1]")
		})
	}
}
