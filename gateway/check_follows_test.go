package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// userPair asks whether the follower follows the user.
func userPair(follower, user string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: user}}
}

// boardPair asks whether the follower follows the board.
func boardPair(follower, owner, id string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_Board{Board: board(owner, id)}}
}

// TestCheckFollowsTellsKindsAndTimes checks the kind of follow and its time for pairs of every
// kind.
func TestCheckFollowsTellsKindsAndTimes(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		follow("ann", "bob"), followBoard("ann", "cid", "cats"), follow("ann", "dan"),
		unfollowBoard("ann", "dan", "dogs"), followBoard("ann", "bob", "birds"),
	)
	cases := []struct {
		name string
		pair *skeinv1.FollowPair
		want skeinv1.FollowKind
	}{
		{"user whom ann follows", userPair("ann", "bob"), skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT},
		{"user who does not follow back", userPair("bob", "ann"), skeinv1.FollowKind_FOLLOW_KIND_NONE},
		{"user of whom ann follows a board", userPair("ann", "cid"), skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT},
		{"board that ann follows", boardPair("ann", "cid", "cats"), skeinv1.FollowKind_FOLLOW_KIND_BOARD},
		{"default board of the same owner", boardPair("ann", "cid", ""), skeinv1.FollowKind_FOLLOW_KIND_NONE},
		{"board that ann excludes", boardPair("ann", "dan", "dogs"), skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED},
		{"default board of a user whom ann follows", boardPair("ann", "dan", ""), skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT},
		{"board that ann follows besides its owner", boardPair("ann", "bob", "birds"), skeinv1.FollowKind_FOLLOW_KIND_BOARD},
		{"users in no event", userPair("never", "mentioned"), skeinv1.FollowKind_FOLLOW_KIND_NONE},
	}
	req := &skeinv1.CheckFollowsRequest{IncludeTimes: true, AtLeast: at}
	for _, c := range cases {
		req.Pairs = append(req.Pairs, c.pair)
	}
	res := ask(w, w.graph.CheckFollows, req)
	if res.GetPosition() != at {
		t.Errorf("got the position %s, want %s", res.GetPosition(), at)
	}
	if len(res.GetKinds()) != len(cases) || len(res.GetFollowTimes()) != len(cases) {
		t.Fatalf("got %d kinds and %d times, want %d each", len(res.GetKinds()), len(res.GetFollowTimes()), len(cases))
	}
	for i, c := range cases {
		if got := res.GetKinds()[i]; got != c.want {
			t.Errorf("%s: got the kind %v, want %v", c.name, got, c.want)
		}
		wantTime := c.want != skeinv1.FollowKind_FOLLOW_KIND_NONE
		if got := res.GetFollowTimes()[i].GetTime(); (got != nil) != wantTime {
			t.Errorf("%s: got the time %v, want one: %v", c.name, got, wantTime)
		}
	}

	withoutTimes := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("a", "b")}})
	if got := withoutTimes.GetFollowTimes(); len(got) != 0 {
		t.Errorf("without include_times: got the times %v, want none", got)
	}
}

// FuzzCheckFollowsJSON checks that any body gets JSON: either an answer that fits the body, or an
// error that blames the caller and has a reason.
func FuzzCheckFollowsJSON(f *testing.F) {
	f.Add([]byte(`{"pairs":[{"userId":"ann","targetUserId":"bob"}],"includeTimes":true}`))
	f.Add([]byte(`{"pairs":[{"userId":"ann","board":{"ownerId":"bob","boardId":"cats"}}],"atLeast":"x"}`))
	f.Add([]byte(`{"pairs":[{"userId":"","targetUserId":"\u0000"},{}]}`))
	f.Add([]byte(`[]`))
	f.Add([]byte("{\"pairs\":[{\"userId\":\"\xff\",\"targetUserId\":\"b\"}]}"))
	w := newWorld(f, func(o *worldOptions) { o.AllowedHosts = []string{"*"} })
	w.publish(follow("ann", "bob"))
	f.Fuzz(func(t *testing.T, body []byte) {
		httpReq := httptest.NewRequestWithContext(t.Context(), http.MethodPost, connectv1.GraphServiceCheckFollowsProcedure, bytes.NewReader(body))
		httpReq.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, httpReq)

		switch rec.Code {
		case http.StatusOK:
			var req skeinv1.CheckFollowsRequest
			if err := protojson.Unmarshal(body, &req); err != nil {
				t.Errorf("%q: got an answer, want an error: %v", body, err)
			}
			var res skeinv1.CheckFollowsResponse
			if err := protojson.Unmarshal(rec.Body.Bytes(), &res); err != nil {
				t.Fatalf("%q: got the answer %s, which is no CheckFollowsResponse: %v", body, rec.Body, err)
			}
			if got, want := len(res.GetKinds()), len(req.GetPairs()); got != want {
				t.Errorf("%q: got %d kinds, want %d: %s", body, got, want, rec.Body)
			}
		case http.StatusBadRequest:
			if parseError(t, rec.Body.Bytes()).reason() == "" {
				t.Errorf("%q: got an error without a reason: %s", body, rec.Body)
			}
		default:
			t.Errorf("%q: got status %d with %s, want 200 or 400", body, rec.Code, rec.Body)
		}
	})
}
