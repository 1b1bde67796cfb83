package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func userPair(follower, user string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: user}}
}

func boardPair(follower, owner, id string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_Board{Board: board(owner, id)}}
}

func TestCheckFollows(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		follow("ann", "bob"), followBoard("ann", "cid", "cats"), follow("ann", "dan"),
		unfollowBoard("ann", "dan", "dogs"), followBoard("ann", "bob", "birds"),
	)
	res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{
		Pairs: []*skeinv1.FollowPair{
			userPair("ann", "bob"), userPair("bob", "ann"), userPair("ann", "cid"), boardPair("ann", "cid", "cats"),
			boardPair("ann", "cid", ""), boardPair("ann", "dan", "dogs"), boardPair("ann", "dan", ""),
			boardPair("ann", "bob", "birds"), userPair("never", "mentioned"),
		},
		IncludeTimes: true, AtLeast: at,
	})
	want := []skeinv1.FollowKind{
		skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, skeinv1.FollowKind_FOLLOW_KIND_NONE,
		skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT, skeinv1.FollowKind_FOLLOW_KIND_BOARD,
		skeinv1.FollowKind_FOLLOW_KIND_NONE, skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED,
		skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT, skeinv1.FollowKind_FOLLOW_KIND_BOARD,
		skeinv1.FollowKind_FOLLOW_KIND_NONE,
	}
	if diff := cmp.Diff(want, res.GetKinds()); diff != "" {
		t.Error(diff)
	}
	if res.GetPosition() != at {
		t.Errorf("position %s, want %s", res.GetPosition(), at)
	}
	for i, k := range want {
		none := k == skeinv1.FollowKind_FOLLOW_KIND_NONE
		if at := res.GetFollowTimes()[i].GetTime(); (at == nil) != none {
			t.Errorf("pair %d: kind %v since %v", i, k, at)
		}
	}
	if res := ask(w, w.graph.CheckFollows, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("a", "b")}}); len(res.GetFollowTimes()) != 0 {
		t.Error("times that nobody asked for")
	}
}

// Whatever the body, the answer is JSON, and either an answer to it or an error of the caller.
func FuzzCheckFollowsJSON(f *testing.F) {
	f.Add([]byte(`{"pairs":[{"userId":"ann","targetUserId":"bob"}],"includeTimes":true}`))
	f.Add([]byte(`{"pairs":[{"userId":"ann","board":{"ownerId":"bob","boardId":"cats"}}],"atLeast":"x"}`))
	f.Add([]byte(`{"pairs":[{"userId":"","targetUserId":"\u0000"},{}]}`))
	f.Add([]byte(`[]`))
	f.Add([]byte("{\"pairs\":[{\"userId\":\"\xff\",\"targetUserId\":\"b\"}]}"))
	w := newWorld(f, func(o *worldOptions) { o.AllowedHosts = []string{"*"} })
	w.publish(follow("ann", "bob"))
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, connectv1.GraphServiceCheckFollowsProcedure, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, req)
		switch rec.Code {
		case http.StatusOK:
			var asked skeinv1.CheckFollowsRequest
			var res skeinv1.CheckFollowsResponse
			if err := protojson.Unmarshal(body, &asked); err != nil {
				t.Errorf("%q is answered", body)
			}
			if err := protojson.Unmarshal(rec.Body.Bytes(), &res); err != nil || len(res.GetKinds()) != len(asked.GetPairs()) {
				t.Errorf("%q: %s", body, rec.Body)
			}
		case http.StatusBadRequest:
			if parseError(t, rec.Body.Bytes()).reason() == "" {
				t.Errorf("%q: an error without a reason: %s", body, rec.Body)
			}
		default:
			t.Errorf("%q: %d %s", body, rec.Code, rec.Body)
		}
	})
}
