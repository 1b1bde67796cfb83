package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// scan reads a scan to its end, or until stop returns true for a message. It returns the entries
// and the last token.
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
		m := stream.Msg()
		entries = append(entries, names(m.GetEntries())...)
		token = m.GetResumeToken()
		if stream.ResponseHeader().Get(LagHeader) == "" {
			w.t.Errorf("ScanFollowers: got no header %s", LagHeader)
		}
		if token == "" || m.GetPosition() == "" {
			w.t.Errorf("ScanFollowers: got token %q and position %q, want both in each message", token, m.GetPosition())
		}
		if n := len(m.GetEntries()); n > 1000 {
			w.t.Errorf("ScanFollowers: got a message with %d entries, want at most 1000", n)
		}
		if stop != nil && stop(m) {
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

// fans lets n users follow a user. It returns the position, and the list of followers, newest
// first.
func (w *world) fans(user string, n int) (at string, want []string) {
	w.t.Helper()
	var evs []*skeinv1.Event
	for i := range n {
		name := fmt.Sprintf("fan%06d", i)
		evs = append(evs, follow(name, user))
		want = append(want, name+" explicit")
	}
	slices.Reverse(want)

	// A call takes at most 1000 events.
	for chunk := range slices.Chunk(evs, 1000) {
		at = w.publish(chunk...)
	}
	return at, want
}

func TestScanFollowers(t *testing.T) {
	w := newWorld(t)
	at, want := w.fans("star", 2500)
	got, lastToken := w.scan(scanUser("star", "", at), nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("followers (-want +got):\n%s", diff)
	}

	// A scan from the last token has no entries, but still has a token.
	if got, token := w.scan(scanUser("star", lastToken, ""), nil); len(got) != 0 || token == "" {
		t.Errorf("scan from the last token: got %v and token %q, want no followers and a token", got, token)
	}

	// Scans that are interrupted after each message continue where the last one ended.
	var all []string
	token := ""
	for range 3 {
		entries, nextToken := w.scan(scanUser("star", token, at), func(*skeinv1.ScanFollowersResponse) bool { return true })
		all = append(all, entries...)
		token = nextToken
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("followers of three scans (-want +got):\n%s", diff)
	}

	if got, token := w.scan(scanUser("nobody", "", at), nil); len(got) != 0 || token == "" {
		t.Errorf("scan of a user without followers: got %v and token %q, want no followers and a token", got, token)
	}
}

func TestScanFollowersOfABoard(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"), followBoard("cid", "bob", "cats"), follow("dan", "bob"), unfollowBoard("dan", "bob", "cats"))
	req := &skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_Board{Board: board("bob", "cats")}, AtLeast: at}
	got, _ := w.scan(req, nil)
	if diff := cmp.Diff([]string{"cid board", "ann explicit"}, got); diff != "" {
		t.Errorf("followers of the board (-want +got):\n%s", diff)
	}
}

// TestScanWhileTheListChanges checks that each message of a scan has the list as it is at the
// position of the message, and that the scan continues in order when the list changes.
func TestScanWhileTheListChanges(t *testing.T) {
	w := newWorld(t)
	at, want := w.fans("star", 3000)

	// After the first message, the oldest fan, who is the last one in the list, unfollows, and a
	// new one, who would be the first, follows. The server may have read the rest before that.
	changedAt := ""
	endOfListAt := ""
	got, _ := w.scan(scanUser("star", "", at), func(res *skeinv1.ScanFollowersResponse) bool {
		if len(res.GetEntries()) > 0 {
			endOfListAt = res.GetPosition()
		}
		if changedAt == "" {
			changedAt = w.publish(unfollow("fan000000", "star"), follow("late", "star"))
		}
		return false
	})

	if n := len(got); n != 3000 && n != 2999 {
		t.Fatalf("got %d followers, want 3000 or 2999", n)
	}
	if diff := cmp.Diff(want[:len(got)], got); diff != "" {
		t.Errorf("followers (-want +got):\n%s", diff)
	}
	readAfterChange := parsePosition(t, endOfListAt).Seq >= parsePosition(t, changedAt).Seq
	if hasOldestFan := len(got) == 3000; hasOldestFan == readAfterChange {
		t.Errorf("the oldest fan is in the list: %v, read after the fan unfollowed: %v, want only one of them", hasOldestFan, readAfterChange)
	}
}

func parsePosition(t *testing.T, position string) events.Position {
	t.Helper()
	p, err := events.ParsePosition(position)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestScanThatIsRefused(t *testing.T) {
	w := newWorld(t)
	at, _ := w.fans("star", 2)
	_, token := w.scan(scanUser("star", "", at), nil)
	for _, c := range []struct {
		name          string
		req           *skeinv1.ScanFollowersRequest
		reason, field string
	}{
		{"the token of another user", scanUser("other", token, ""), "INVALID_PAGE_TOKEN", "resume_token"},
		{"no token", scanUser("star", "AQ", ""), "INVALID_PAGE_TOKEN", "resume_token"},
		{"an empty user", scanUser("", "", ""), "INVALID_FIELD", "user_id"},
		{"a space", scanUser("a b", "", ""), "INVALID_FIELD", "user_id"},
		{"no target", &skeinv1.ScanFollowersRequest{}, "INVALID_FIELD", "target"},
		{"no position", scanUser("star", "", "x"), "INVALID_POSITION", "at_least"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(c.req))
			if err != nil {
				t.Fatal(err)
			}
			for stream.Receive() {
				t.Errorf("got message %v, want none", stream.Msg())
			}
			wantError(t, stream.Err(), connect.CodeInvalidArgument, c.reason, c.field)
			if err := stream.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
