package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

var errCut = errors.New("the connection was cut")

// patientStream are options with which a stream is opened again only because it was cut, and not
// because the machine stands still.
var patientStream = client.StreamOptions{RetryFor: patience, IdleTimeout: patience}

// cuttingHTTPClient is an HTTP client that cuts answers off, as a broken connection does.
type cuttingHTTPClient struct {
	next  http.RoundTripper
	calls atomic.Int64
	// cutAfter returns after how many bytes the answer of a call is cut. Calls are counted from 1.
	// A negative result means that the answer is not cut.
	cutAfter func(call int64) int64
}

func (c *cuttingHTTPClient) Do(r *http.Request) (*http.Response, error) {
	call := c.calls.Add(1)
	res, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if bytes := c.cutAfter(call); bytes >= 0 {
		res.Body = &cutBody{res.Body, bytes}
	}
	return res, nil
}

// cutBody is a body of which only some bytes can be read. Then it returns errCut.
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

// cutNothing is a cutAfter function that cuts no answer.
func cutNothing(int64) int64 { return -1 }

// cutFirstAnswers returns a cutAfter function that cuts the answers of the first calls after so
// many bytes, and no later ones.
func cutFirstAnswers(calls, bytes int64) func(call int64) int64 {
	return func(call int64) int64 {
		if call <= calls {
			return bytes
		}
		return -1
	}
}

// dialCutting returns a client that calls through a cuttingHTTPClient.
func dialCutting(t *testing.T, url string, cutAfter func(call int64) int64) (*client.Client, *cuttingHTTPClient) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cutting := &cuttingHTTPClient{next: transport, cutAfter: cutAfter}
	c, err := client.Dial(url, client.Options{HTTP: cutting})
	if err != nil {
		t.Fatal(err)
	}
	return c, cutting
}

// mustPublishFans publishes follows of the user star, by fan000, fan001 and so on, and waits until
// they are visible.
func mustPublishFans(t *testing.T, c *client.Client, fans int) *skeinv1.PublishResponse {
	t.Helper()
	var follows []*skeinv1.Event
	for i := range fans {
		follows = append(follows, follow(fmt.Sprintf("fan%03d", i), "star"))
	}

	options := client.PublishOptions{Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE, RetryFor: patience}
	res, err := c.Publish(t.Context(), follows, options)
	if err != nil {
		t.Fatal(err)
	}

	// Publish gives ids to events that have none, in a copy.
	if got := follows[0].GetEventId(); got != "" {
		t.Errorf("id of the caller's event after Publish: got %q, want none", got)
	}
	return res
}

func TestPagesAndEntriesAreReadOnDemand(t *testing.T) {
	url, stop := startService()
	defer stop()
	c, network := dialCutting(t, url, cutNothing)
	mustPublishFans(t, c, 7)
	req := &skeinv1.ListFollowersRequest{UserId: "star", PageSize: 3}
	getEntries := (*skeinv1.ListFollowersResponse).GetEntries

	t.Run("all pages", func(t *testing.T) {
		var sizes []int
		for page, err := range client.Pages(t.Context(), c.Graph.ListFollowers, req) {
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(page.GetEntries()))
		}
		if want := []int{3, 3, 1}; !slices.Equal(sizes, want) {
			t.Errorf("sizes of the pages: got %v, want %v", sizes, want)
		}
		if got := req.GetPageToken(); got != "" {
			t.Errorf("page_token of the caller's request: got %q, want it unchanged", got)
		}
	})
	t.Run("all entries", func(t *testing.T) {
		var followers []string
		for entry, err := range client.Each(t.Context(), c.Graph.ListFollowers, req, getEntries) {
			if err != nil {
				t.Fatal(err)
			}
			followers = append(followers, entry.GetUserId())
		}
		want := []string{"fan006", "fan005", "fan004", "fan003", "fan002", "fan001", "fan000"}
		if !slices.Equal(followers, want) {
			t.Errorf("followers: got %v, want %v", followers, want)
		}
	})
	t.Run("one entry needs one call", func(t *testing.T) {
		callsBefore := network.calls.Load()
		for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, req, getEntries) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if got := network.calls.Load() - callsBefore; got != 1 {
			t.Errorf("calls for one entry: got %d, want 1", got)
		}
	})
	t.Run("an error ends the iteration", func(t *testing.T) {
		errorCount := 0
		invalid := &skeinv1.ListFollowersRequest{UserId: "a b"}
		for _, err := range client.Each(t.Context(), c.Graph.ListFollowers, invalid, getEntries) {
			errorCount++
			if got := client.Reason(err); got != "INVALID_FIELD" {
				t.Errorf("got the reason %q (%v), want INVALID_FIELD", got, err)
			}
		}
		if errorCount != 1 {
			t.Errorf("got %d errors, want 1", errorCount)
		}
	})
}

// TestLostAnswerDoesNotRepeatEvents checks that Publish retries a call whose answer was lost with
// the same event ids, so the log has each event once. It does not retry a call that was rejected.
func TestLostAnswerDoesNotRepeatEvents(t *testing.T) {
	url, stop := startService()
	defer stop()
	c, network := dialCutting(t, url, cutFirstAnswers(2, 0))

	// The third call is the first one with an answer. The service has the events since the first.
	res := mustPublishFans(t, c, 3)
	if got := network.calls.Load(); got != 3 {
		t.Errorf("calls of Publish: got %d, want 3", got)
	}
	if got, want := res.GetRepeatedIndexes(), []int32{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("repeated indexes: got %v, want %v", got, want)
	}

	// One more event marks the end of what is read.
	end := mustPublishFans(t, c, 1).GetPosition()
	eventCount := 0
	for m, err := range c.Watch(t.Context(), &skeinv1.WatchRequest{After: "EARLIEST"}, patientStream) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetEvent() != nil {
			eventCount++
		}
		if m.GetPosition() == end {
			break
		}
	}
	if eventCount != 3+1 {
		t.Errorf("events in the log: got %d, want 3 and the last one", eventCount)
	}

	callsBefore := network.calls.Load()
	_, err := c.Publish(t.Context(), []*skeinv1.Event{follow("ann", "ann")}, client.PublishOptions{})
	if got := client.Reason(err); got != "SELF_RELATION" {
		t.Errorf("Publish of a follow of oneself: got the reason %q (%v), want SELF_RELATION", got, err)
	}
	if got := network.calls.Load() - callsBefore; got != 1 {
		t.Errorf("calls of a rejected Publish: got %d, want 1", got)
	}
}

func TestBrokenWatchHasEachEventOnce(t *testing.T) {
	url, stop := startService()
	defer stop()
	const fans = 40
	c, _ := dialCutting(t, url, cutNothing)
	lastPosition := mustPublishFans(t, c, fans).GetPosition()

	// 500 bytes are some messages, but far from all.
	broken, network := dialCutting(t, url, cutFirstAnswers(4, 500))
	timesSeen := map[string]int{}
	for m, err := range broken.Watch(t.Context(), &skeinv1.WatchRequest{After: "EARLIEST"}, patientStream) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetEvent() != nil {
			timesSeen[m.GetEvent().GetUserFollowed().GetUserId()]++
		}
		if m.GetPosition() == lastPosition {
			break
		}
	}

	if got := network.calls.Load(); got != 5 {
		t.Errorf("calls of Watch: got %d, want 5", got)
	}
	if len(timesSeen) != fans {
		t.Errorf("followers in the events: got %d, want %d", len(timesSeen), fans)
	}
	for user, times := range timesSeen {
		if times != 1 {
			t.Errorf("the follow by %s came %d times, want once", user, times)
		}
	}
}

func TestBrokenScanHasEachFollowerAndEnds(t *testing.T) {
	url, stop := startService()
	defer stop()
	const fans = 30
	c, _ := dialCutting(t, url, cutNothing)
	mustPublishFans(t, c, fans)

	broken, network := dialCutting(t, url, cutFirstAnswers(2, 0))
	followers := map[string]bool{}
	req := &skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "star"}}
	for m, err := range broken.ScanFollowers(t.Context(), req, patientStream) {
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range m.GetEntries() {
			followers[entry.GetUserId()] = true
		}
	}

	if len(followers) != fans {
		t.Errorf("followers: got %d, want %d", len(followers), fans)
	}
	if got := network.calls.Load(); got != 3 {
		t.Errorf("calls of ScanFollowers: got %d, want 3", got)
	}
	if got := req.GetResumeToken(); got != "" {
		t.Errorf("resume_token of the caller's request: got %q, want it unchanged", got)
	}
}

// readToError reads a stream to its end. It returns the number of messages, and the error with
// which the stream has ended.
func readToError[Message any](stream iter.Seq2[*Message, error]) (messages int, err error) {
	for _, err = range stream {
		if err == nil {
			messages++
		}
	}
	return messages, err
}

func TestStreamEndsWithTheError(t *testing.T) {
	url, stop := startService()
	defer stop()
	c, network := dialCutting(t, url, cutNothing)

	t.Run("of its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		for _, last = range c.Watch(ctx, &skeinv1.WatchRequest{}, client.StreamOptions{}) {
			cancel()
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("got the error %v, want %v", last, context.Canceled)
		}
	})
	t.Run("that a retry would repeat", func(t *testing.T) {
		messages, err := readToError(c.Watch(t.Context(), &skeinv1.WatchRequest{After: "x"}, client.StreamOptions{}))
		if got := client.Reason(err); messages != 0 || got != "INVALID_POSITION" {
			t.Errorf("got %d messages and the reason %q (%v), want 0 and INVALID_POSITION", messages, got, err)
		}
	})
	t.Run("of a method that the service lacks", func(t *testing.T) {
		messages, err := readToError(c.WatchFeed(t.Context(), &skeinv1.WatchFeedRequest{ReaderId: "ann"}, client.StreamOptions{}))
		if messages != 0 || connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("got %d messages and the error %v, want 0 and the code unimplemented", messages, err)
		}
	})
	t.Run("of its idle timeout, without a retry", func(t *testing.T) {
		callsBefore := network.calls.Load()
		// The service sends a message only every 5 seconds. A negative RetryFor means no retry.
		options := client.StreamOptions{IdleTimeout: time.Millisecond, RetryFor: -1}
		_, err := readToError(c.Watch(t.Context(), &skeinv1.WatchRequest{}, options))
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("got the error %v, want the code unavailable", err)
		}
		if got := network.calls.Load() - callsBefore; got != 1 {
			t.Errorf("calls of Watch: got %d, want 1", got)
		}
	})
}
