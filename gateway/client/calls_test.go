package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

var errCut = errors.New("the connection was cut")

// cutting is a network that loses answers: cut says of the n-th call, from 1, after how many bytes; negative means not at all.
type cutting struct {
	next  http.RoundTripper
	calls atomic.Int64
	cut   func(n int64) int64
}

func (c *cutting) Do(r *http.Request) (*http.Response, error) {
	n := c.calls.Add(1)
	res, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if left := c.cut(n); left >= 0 {
		res.Body = &cutBody{res.Body, left}
	}
	return res, nil
}

type cutBody struct {
	io.ReadCloser
	left int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// dial connects through a network that cuts.
func dial(t *testing.T, url string, cut func(n int64) int64) (*client.Client, *cutting) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	network := &cutting{next: transport, cut: cut}
	c, err := client.Dial(url, client.Options{HTTP: network})
	if err != nil {
		t.Fatal(err)
	}
	return c, network
}

func whole(int64) int64 { return -1 }

// fans publishes follows of a star.
func fans(t *testing.T, c *client.Client, n int) *skeinv1.PublishResponse {
	t.Helper()
	var evs []*skeinv1.Event
	for i := range n {
		evs = append(evs, follow(fmt.Sprintf("fan%03d", i), "star"))
	}
	res, err := c.Publish(t.Context(), evs, client.PublishOptions{Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE})
	if err != nil {
		t.Fatal(err)
	}
	if evs[0].GetEventId() != "" {
		t.Error("the event of the caller was changed")
	}
	return res
}

// TestPages: all entries, page by page, as far as they are asked for.
func TestPages(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, whole)
	fans(t, c, 7)
	req := &skeinv1.ListFollowersRequest{UserId: "star", PageSize: 3}
	var sizes []int
	for page, err := range client.Pages(t.Context(), c.Graph.ListFollowers, req) {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.GetEntries()))
	}
	if fmt.Sprint(sizes) != "[3 3 1]" || req.GetPageToken() != "" {
		t.Errorf("pages of %v entries, then %v", sizes, req)
	}
	entries := (*skeinv1.ListFollowersResponse).GetEntries
	var names []string
	for entry, err := range client.Each(t.Context(), c.Graph.ListFollowers, req, entries) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.GetUserId())
	}
	if len(names) != 7 || names[0] != "fan006" || names[6] != "fan000" {
		t.Errorf("%v", names)
	}
	before := network.calls.Load()
	for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, req, entries) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if n := network.calls.Load() - before; n != 1 {
		t.Errorf("%d calls for one entry", n)
	}
	errs := 0
	for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "a b"}, entries) {
		if errs++; client.Reason(err) != "INVALID_FIELD" {
			t.Errorf("%v", err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors", errs)
	}
}

// TestPublishOnce: an event whose answer was lost is published again with the same id, so the log has it once.
func TestPublishOnce(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, func(n int64) int64 {
		if n <= 2 {
			return 0
		}
		return -1
	})
	res := fans(t, c, 3)
	if network.calls.Load() != 3 || fmt.Sprint(res.GetRepeatedIndexes()) != "[0 1 2]" {
		t.Errorf("%d calls, repeats %v", network.calls.Load(), res.GetRepeatedIndexes())
	}
	n := 0
	for m, err := range c.Watch(t.Context(), &skeinv1.WatchRequest{After: "EARLIEST"}, client.StreamOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetEvent() != nil {
			n++
		}
		if m.GetPosition() == res.GetPosition() {
			break
		}
	}
	if n != 3 {
		t.Errorf("the log has %d events", n)
	}
	// What is refused is not tried again.
	before := network.calls.Load()
	_, err := c.Publish(t.Context(), []*skeinv1.Event{follow("ann", "ann")}, client.PublishOptions{})
	if client.Reason(err) != "SELF_RELATION" && client.Reason(err) != "INVALID_EVENT" || network.calls.Load() != before+1 {
		t.Errorf("%v after %d calls", err, network.calls.Load()-before)
	}
}

// TestWatchContinues: a stream that breaks in the middle continues after its last message: nothing is left out, nothing comes twice.
func TestWatchContinues(t *testing.T) {
	url, stop := service()
	defer stop()
	c, _ := dial(t, url, whole)
	at := fans(t, c, 40).GetPosition()
	broken, network := dial(t, url, func(n int64) int64 {
		if n < 5 {
			return 500
		}
		return -1
	})
	seen := map[string]int{}
	for m, err := range broken.Watch(t.Context(), &skeinv1.WatchRequest{After: "EARLIEST"}, client.StreamOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetEvent() != nil {
			seen[m.GetEvent().GetUserFollowed().GetUserId()]++
		}
		if m.GetPosition() == at {
			break
		}
	}
	if len(seen) != 40 || network.calls.Load() != 5 {
		t.Errorf("%d of 40 events after %d calls", len(seen), network.calls.Load())
	}
	for user, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", user, n)
		}
	}
}

// TestScanContinues: a scan that breaks has every follower once, and an end.
func TestScanContinues(t *testing.T) {
	url, stop := service()
	defer stop()
	c, _ := dial(t, url, whole)
	fans(t, c, 30)
	broken, network := dial(t, url, func(n int64) int64 {
		if n < 3 {
			return 0
		}
		return -1
	})
	seen := map[string]int{}
	req := &skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "star"}}
	for m, err := range broken.ScanFollowers(t.Context(), req, client.StreamOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.GetEntries() {
			seen[e.GetUserId()]++
		}
	}
	if len(seen) != 30 || network.calls.Load() != 3 || req.GetResumeToken() != "" {
		t.Errorf("%d of 30 followers after %d calls", len(seen), network.calls.Load())
	}
}

// TestStreamEnds: a stream ends with its context, with an error that stays, at once if nothing is to be tried again, and when it is silent
// for too long.
func TestStreamEnds(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, whole)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, last = range c.Watch(ctx, &skeinv1.WatchRequest{}, client.StreamOptions{}) {
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("canceled: %v", last)
	}
	for _, last = range c.Watch(t.Context(), &skeinv1.WatchRequest{After: "x"}, client.StreamOptions{}) {
		if client.Reason(last) != "INVALID_POSITION" {
			t.Errorf("no position: %v", last)
		}
	}
	for _, last = range c.WatchFeed(t.Context(), &skeinv1.WatchFeedRequest{ReaderId: "ann"}, client.StreamOptions{}) {
		if connect.CodeOf(last) != connect.CodeUnimplemented {
			t.Errorf("no inbox: %v", last)
		}
	}
	before := network.calls.Load()
	silent := client.StreamOptions{Silence: time.Millisecond, RetryFor: -1}
	for _, last = range c.Watch(t.Context(), &skeinv1.WatchRequest{}, silent) {
		if last == nil {
			continue
		}
		if connect.CodeOf(last) != connect.CodeUnavailable || network.calls.Load() != before+1 {
			t.Errorf("silence: %v after %d calls", last, network.calls.Load()-before)
		}
	}
}
