package gateway

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// scan reads a scan to its end, or until stop says so, and returns the entries and the last token.
func (w *world) scan(req *skeinv1.ScanFollowersRequest, stop func(*skeinv1.ScanFollowersResponse) bool) ([]string, string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	stream, err := w.graph.ScanFollowers(ctx, connect.NewRequest(req))
	if err != nil {
		w.t.Fatal(err)
	}
	defer stream.Close()
	var entries []string
	token := ""
	for stream.Receive() {
		entries = append(entries, names(stream.Msg().GetEntries())...)
		token = stream.Msg().GetResumeToken()
		if stream.ResponseHeader().Get(LagHeader) == "" {
			w.t.Error("no lag")
		}
		if token == "" || stream.Msg().GetPosition() == "" {
			w.t.Error("a message without token or position")
		}
		if len(stream.Msg().GetEntries()) > 1000 {
			w.t.Error("a message with more than 1000 entries")
		}
		if stop != nil && stop(stream.Msg()) {
			return entries, token
		}
	}
	if err := stream.Err(); err != nil {
		w.t.Fatal(err)
	}
	return entries, token
}

func scanUser(user, token, at string) *skeinv1.ScanFollowersRequest {
	return &skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: user}, ResumeToken: token, AtLeast: at,
	}
}

// fans makes n followers of a user and returns the position and the list, newest first.
func (w *world) fans(user string, n int) (at string, want []string) {
	w.t.Helper()
	var evs []*skeinv1.Event
	for i := range n {
		name := fmt.Sprintf("fan%06d", i)
		evs, want = append(evs, follow(name, user)), append([]string{name + " explicit"}, want...)
		if len(evs) == 1000 || i == n-1 {
			at, evs = w.publish(evs...), nil
		}
	}
	return at, want
}

func TestScanFollowers(t *testing.T) {
	w := newWorld(t)
	at, want := w.fans("star", 2500)
	got, end := w.scan(scanUser("star", "", at), nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	// From the token of the last message nothing is left, and it says so by ending.
	if got, again := w.scan(scanUser("star", end, ""), nil); len(got) != 0 || again == "" {
		t.Errorf("after the end: %v, token %q", got, again)
	}
	// Interrupted after each message in turn, it continues where it was.
	var pieces []string
	token := ""
	for range 3 {
		piece, last := w.scan(scanUser("star", token, at), func(*skeinv1.ScanFollowersResponse) bool { return true })
		pieces, token = append(pieces, piece...), last
	}
	if diff := cmp.Diff(want, pieces); diff != "" {
		t.Error(diff)
	}
	if got, token := w.scan(scanUser("nobody", "", at), nil); len(got) != 0 || token == "" {
		t.Errorf("of nobody: %v, token %q", got, token)
	}
}

func TestScanFollowersOfABoard(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"), followBoard("cid", "bob", "cats"), follow("dan", "bob"), unfollowBoard("dan", "bob", "cats"))
	req := &skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_Board{Board: board("bob", "cats")}, AtLeast: at}
	got, _ := w.scan(req, nil)
	if diff := cmp.Diff([]string{"cid board", "ann explicit"}, got); diff != "" {
		t.Error(diff)
	}
}

// A scan continues with what the list has become, and holds no state of the store while the client
// takes its time: each chunk is read when it is asked for.
func TestScanWhileTheListChanges(t *testing.T) {
	w := newWorld(t)
	at, want := w.fans("star", 3000)
	positions := map[string]bool{}
	changed := false
	got, _ := w.scan(scanUser("star", "", at), func(res *skeinv1.ScanFollowersResponse) bool {
		positions[res.GetPosition()] = true
		if !changed {
			changed = true
			w.publish(unfollow("fan000000", "star"), follow("late", "star"))
		}
		return false
	})
	if n := len(got); n != 3000 && n != 2999 {
		t.Errorf("%d entries", n)
	}
	if diff := cmp.Diff(want[:2999], got[:2999]); diff != "" {
		t.Error(diff)
	}
}

func TestScanThatIsRefused(t *testing.T) {
	w := newWorld(t)
	at, _ := w.fans("star", 2)
	_, token := w.scan(scanUser("star", "", at), nil)
	for _, c := range []struct {
		req           *skeinv1.ScanFollowersRequest
		reason, field string
	}{
		{scanUser("other", token, ""), "INVALID_PAGE_TOKEN", "resume_token"},
		{scanUser("star", "AQ", ""), "INVALID_PAGE_TOKEN", "resume_token"},
		{scanUser("", "", ""), "INVALID_FIELD", "user_id"},
		{scanUser("a b", "", ""), "INVALID_FIELD", "user_id"},
		{&skeinv1.ScanFollowersRequest{}, "INVALID_FIELD", "target"},
		{scanUser("star", "", "x"), "INVALID_POSITION", "at_least"},
	} {
		stream, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(c.req))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			t.Error(stream.Msg())
		}
		wantError(t, stream.Err(), connect.CodeInvalidArgument, c.reason, c.field)
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
}
