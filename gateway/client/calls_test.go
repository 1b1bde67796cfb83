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

// cuttingNetwork is an HTTP client that cuts answers off. cut returns after how many bytes the
// answer of the n-th call, counted from 1, is cut. A negative number means that it is not.
type cuttingNetwork struct {
	next  http.RoundTripper
	calls atomic.Int64
	cut   func(n int64) int64
}

func (c *cuttingNetwork) Do(r *http.Request) (*http.Response, error) {
	n := c.calls.Add(1)
	res, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if bytes := c.cut(n); bytes >= 0 {
		res.Body = &cutBody{res.Body, bytes}
	}
	return res, nil
}

type cutBody struct {
	io.ReadCloser
	remaining int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.remaining == 0 {
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.remaining)])
	b.remaining -= int64(n)
	return n, err
}

// dial returns a client whose calls go through a network that cuts answers.
func dial(t *testing.T, url string, cut func(n int64) int64) (*client.Client, *cuttingNetwork) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	network := &cuttingNetwork{next: transport, cut: cut}
	c, err := client.Dial(url, client.Options{HTTP: network})
	if err != nil {
		t.Fatal(err)
	}
	return c, network
}

// never cuts no answer.
func never(int64) int64 { return -1 }

// publishFans publishes n follows of the user star.
func publishFans(t *testing.T, c *client.Client, n int) *skeinv1.PublishResponse {
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

func TestPagesAndEntriesAreReadOnDemand(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, never)
	publishFans(t, c, 7)
	req := &skeinv1.ListFollowersRequest{UserId: "star", PageSize: 3}
	var sizes []int
	for page, err := range client.Pages(t.Context(), c.Graph.ListFollowers, req) {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.GetEntries()))
	}
	if fmt.Sprint(sizes) != "[3 3 1]" || req.GetPageToken() != "" {
		t.Errorf("got pages of %v entries and then the request %v, expected [3 3 1] and a request that is unchanged", sizes, req)
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
		t.Errorf("got the followers %v, expected fan006 to fan000", names)
	}
	before := network.calls.Load()
	for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, req, entries) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if n := network.calls.Load() - before; n != 1 {
		t.Errorf("one entry needed %d calls, expected 1", n)
	}
	errs := 0
	for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "a b"}, entries) {
		if errs++; client.Reason(err) != "INVALID_FIELD" {
			t.Errorf("got the error %v, expected INVALID_FIELD", err)
		}
	}
	if errs != 1 {
		t.Errorf("got %d errors, expected the iteration to end after the first one", errs)
	}
}

// Publish retries a call whose answer was lost with the same event ids, so the log has each event
// once.
func TestLostAnswerDoesNotRepeatEvents(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, func(n int64) int64 {
		if n <= 2 {
			return 0
		}
		return -1
	})
	res := publishFans(t, c, 3)
	if network.calls.Load() != 3 || fmt.Sprint(res.GetRepeatedIndexes()) != "[0 1 2]" {
		t.Errorf("got %d calls and the repeats %v, expected 3 calls and [0 1 2]", network.calls.Load(), res.GetRepeatedIndexes())
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
		t.Errorf("the log has %d events, expected 3", n)
	}
	// A rejected call is not retried.
	before := network.calls.Load()
	_, err := c.Publish(t.Context(), []*skeinv1.Event{follow("ann", "ann")}, client.PublishOptions{})
	if client.Reason(err) != "SELF_RELATION" && client.Reason(err) != "INVALID_EVENT" || network.calls.Load() != before+1 {
		t.Errorf("got %v after %d calls, expected a rejection after 1", err, network.calls.Load()-before)
	}
}

func TestBrokenWatchHasEachEventOnce(t *testing.T) {
	url, stop := service()
	defer stop()
	c, _ := dial(t, url, never)
	at := publishFans(t, c, 40).GetPosition()
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
		t.Errorf("got %d events after %d calls, expected 40 after 5", len(seen), network.calls.Load())
	}
	for user, n := range seen {
		if n != 1 {
			t.Errorf("the follow of %s came %d times, expected 1", user, n)
		}
	}
}

func TestBrokenScanHasEachFollowerAndEnds(t *testing.T) {
	url, stop := service()
	defer stop()
	c, _ := dial(t, url, never)
	publishFans(t, c, 30)
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
		t.Errorf("got %d followers after %d calls, expected 30 after 3 and a request that is unchanged", len(seen), network.calls.Load())
	}
}

func TestStreamEndsWithTheError(t *testing.T) {
	url, stop := service()
	defer stop()
	c, network := dial(t, url, never)
	var last error

	t.Run("of its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, last = range c.Watch(ctx, &skeinv1.WatchRequest{}, client.StreamOptions{}) {
			cancel()
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("got %v, expected %v", last, context.Canceled)
		}
	})
	t.Run("that a retry would repeat", func(t *testing.T) {
		for _, last = range c.Watch(t.Context(), &skeinv1.WatchRequest{After: "x"}, client.StreamOptions{}) {
			if client.Reason(last) != "INVALID_POSITION" {
				t.Errorf("got %v, expected INVALID_POSITION", last)
			}
		}
	})
	t.Run("of a method that the service lacks", func(t *testing.T) {
		for _, last = range c.WatchFeed(t.Context(), &skeinv1.WatchFeedRequest{ReaderId: "ann"}, client.StreamOptions{}) {
			if connect.CodeOf(last) != connect.CodeUnimplemented {
				t.Errorf("got %v, expected the code unimplemented", last)
			}
		}
	})
	t.Run("of its idle timeout, without a retry", func(t *testing.T) {
		before := network.calls.Load()
		options := client.StreamOptions{IdleTimeout: time.Millisecond, RetryFor: -1}
		for _, last = range c.Watch(t.Context(), &skeinv1.WatchRequest{}, options) {
			if last == nil {
				continue
			}
			if connect.CodeOf(last) != connect.CodeUnavailable || network.calls.Load() != before+1 {
				t.Errorf("got %v after %d calls, expected the code unavailable after 1", last, network.calls.Load()-before)
			}
		}
	})
}
