package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// likes is the list of what a user likes, as any other list.
func (w *world) likes(user string) lister {
	return list(w.feed.ListLikes, func(size int32, token, at string) *skeinv1.ListLikesRequest {
		return &skeinv1.ListLikesRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListLikesResponse) (items []string, _ int64) {
		for _, e := range r.GetEntries() {
			items = append(items, e.GetItemId())
		}
		return items, -1
	})
}

func TestListLikes(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(
		liked("ann", "i1"), liked("ann", "gone"), liked("ann", "i2"), liked("bob", "i3"), unliked("ann", "gone"), liked("ann", "i1"),
		liked("ann", "again"), liked("ann", "i4"), unliked("ann", "again"), liked("ann", "again"), history(liked("ann", "old"), 2, 2),
		history(liked("ann", "older"), 3, 3),
	)
	want := []string{"again", "i4", "i2", "i1", "old", "older"}
	for _, size := range []int32{1, 2, 5, 6, 1000} {
		if diff := cmp.Diff(want, w.likes("ann").all(t, size, at)); diff != "" {
			t.Errorf("pages of %d: %s", size, diff)
		}
	}
	res := ask(w, w.feed.ListLikes, &skeinv1.ListLikesRequest{UserId: "ann", AtLeast: at})
	for i, e := range res.GetEntries() {
		if i > 0 && e.GetLikeTime().AsTime().After(res.GetEntries()[i-1].GetLikeTime().AsTime()) {
			t.Errorf("%v comes after %v", e, res.GetEntries()[i-1])
		}
		if s := w.countersOf(at, countsOfItem(e.GetItemId()))[0]; s.GetLikeCount() != 1 {
			t.Errorf("%s has %d likes", e.GetItemId(), s.GetLikeCount())
		}
	}
	if got := w.likes("stranger").all(t, 1, at); len(got) != 0 {
		t.Error(got)
	}
	// While the list changes, what stays is shown once, and what is liked anew is above the page (I9).
	first, err := w.likes("ann")(2, "", at)
	if err != nil {
		t.Fatal(err)
	}
	at = w.publish(unliked("ann", "i4"), unliked("ann", "i2"), liked("ann", "top"))
	rest, err := w.likes("ann")(10, first.next, at)
	if diff := cmp.Diff([]string{"i1", "old", "older"}, rest.entries); diff != "" || err != nil || rest.position != at || rest.next != "" {
		t.Errorf("%+v: %v: %s", rest, err, diff)
	}
	if got := w.likes("ann").all(t, 1, w.publish(deletedUser("ann"))); len(got) != 0 {
		t.Errorf("after the user ended: %v", got)
	}
}

func TestListLikesBadInput(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(liked("ann", "a"), liked("ann", "b"), liked("bob", "a"), liked("bob", "b"))
	ofBob, err := w.likes("bob")(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req           *skeinv1.ListLikesRequest
		reason, field string
	}{
		"no user":             {&skeinv1.ListLikesRequest{}, "INVALID_FIELD", "user_id"},
		"a space":             {&skeinv1.ListLikesRequest{UserId: "a b"}, "INVALID_FIELD", "user_id"},
		"too long":            {&skeinv1.ListLikesRequest{UserId: strings.Repeat("x", 129)}, "INVALID_FIELD", "user_id"},
		"negative size":       {&skeinv1.ListLikesRequest{UserId: "ann", PageSize: -1}, "INVALID_FIELD", "page_size"},
		"no token":            {&skeinv1.ListLikesRequest{UserId: "ann", PageToken: "x"}, "INVALID_PAGE_TOKEN", "page_token"},
		"the token of others": {&skeinv1.ListLikesRequest{UserId: "ann", PageToken: ofBob.next}, "INVALID_PAGE_TOKEN", "page_token"},
		"no position":         {&skeinv1.ListLikesRequest{UserId: "ann", AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.ListLikes(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// What a user likes is the user's own.
func TestListLikesOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(liked("ann", "i"), liked("bob", "i"))
	for _, token := range []string{"reader", "ann"} {
		if got := g.as(g.tokens[token]).likes("ann").all(t, 1, at); len(got) != 1 {
			t.Errorf("%s: %v", token, got)
		}
	}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		_, err := g.as(g.tokens[token]).feed.ListLikes(context.Background(), connect.NewRequest(&skeinv1.ListLikesRequest{UserId: "bob"}))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}

// Without counters, the error says what the call needs.
func TestListLikesWithoutCounters(t *testing.T) {
	w := newWorld(t, withFeeds, func(o *worldOptions) { o.counters = nil })
	_, err := w.feed.ListLikes(t.Context(), connect.NewRequest(&skeinv1.ListLikesRequest{}))
	wantError(t, err, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", "")
	if err == nil || !strings.Contains(errors.Unwrap(err).Error(), "the inbox and counters projections") {
		t.Error(err)
	}
}
