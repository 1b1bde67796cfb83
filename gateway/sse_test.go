package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// eventSource reads Server-Sent Events as a browser does.
type eventSource struct {
	t      *testing.T
	res    *http.Response
	lines  *bufio.Scanner
	lastID string
}

func (w *world) eventSource(t *testing.T, procedure, message string, header ...string) *eventSource {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	query := ""
	if message != "" {
		query = "?message=" + url.QueryEscape(message)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+procedure+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
	})
	return &eventSource{t: t, res: res, lines: bufio.NewScanner(res.Body)}
}

// next reads an event: its name, and its data as a message.
func (e *eventSource) next(data proto.Message) (name string) {
	e.t.Helper()
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "id":
			e.lastID = value
		case "event":
			name = value
		case "data":
			if err := protojson.Unmarshal([]byte(value), data); err != nil {
				e.t.Fatalf("%v: %s", err, value)
			}
		case "":
			return name
		}
	}
	e.t.Fatalf("the stream ended: %v", e.lines.Err())
	return ""
}

// failure is the error with which a call was refused.
func (e *eventSource) failure() (status int, text string) {
	e.t.Helper()
	var body struct{ Message string }
	if err := json.NewDecoder(e.res.Body).Decode(&body); err != nil {
		e.t.Fatal(err)
	}
	if kind := e.res.Header.Get("Content-Type"); kind != "application/json" {
		e.t.Errorf("an error of type %q", kind)
	}
	return e.res.StatusCode, body.Message
}

// TestEventsOfFeed: a page in a browser reads WatchFeed by EventSource, and continues after its
// last event.
func TestEventsOfFeed(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.Origins = []string{"https://app.example"} })
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"))
	ask := `{"readerId":"ann","atLeast":"` + at + `"}`
	e := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, ask, "Origin", "https://app.example")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no",
		"Access-Control-Allow-Origin": "https://app.example",
	} {
		if got := e.res.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	var m skeinv1.WatchFeedResponse
	if name := e.next(&m); name != "" || m.GetCount() != 1 || m.GetPosition() != at || e.lastID != at {
		t.Errorf("%q, %v, id %q", name, &m, e.lastID)
	}
	w.publish(pinned("bob", "", "2"))
	for m.GetCount() != 2 {
		e.next(&m)
	}
	// The same URL, the last id: the number is the same, and not of before.
	again := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, ask, "Last-Event-ID", e.lastID)
	if again.next(&m); m.GetCount() != 2 {
		t.Errorf("continued with %v", &m)
	}
}

// TestEventsOfLog: the log by EventSource. After the last event comes what that one was followed
// by.
func TestEventsOfLog(t *testing.T) {
	w := newWorld(t)
	w.publish(follow("ann", "bob"), unfollow("ann", "bob"), follow("ann", "cid"))
	e := w.eventSource(t, connectv1.EventServiceWatchProcedure, `{"after":"EARLIEST","kinds":["user_followed"]}`)
	var m skeinv1.WatchResponse
	for m.GetEvent() == nil {
		m.Reset()
		e.next(&m)
	}
	if got := m.GetEvent().GetUserFollowed().GetTargetUserId(); got != "bob" || e.lastID != m.GetPosition() {
		t.Errorf("%v, id %q", &m, e.lastID)
	}
	e = w.eventSource(t, connectv1.EventServiceWatchProcedure, `{"after":"EARLIEST"}`, "Last-Event-ID", e.lastID)
	var got []*skeinv1.Event
	for len(got) < 2 {
		m.Reset()
		if e.next(&m); m.GetEvent() != nil {
			got = append(got, m.GetEvent())
		}
	}
	if got[0].GetUserUnfollowed() == nil || got[1].GetUserFollowed().GetTargetUserId() != "cid" {
		t.Errorf("continued with %v", got)
	}
	// Without a message: what is new.
	e = w.eventSource(t, connectv1.EventServiceWatchProcedure, "")
	if m.Reset(); e.next(&m) != "" || m.GetEvent() != nil || m.GetPosition() == "" {
		t.Errorf("it begins with %v", &m)
	}
}

// TestEventsRefused: what is refused is a JSON error with the status of every other call.
func TestEventsRefused(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.Limits.FeedWatches = 1 })
	feed := connectv1.FeedServiceWatchFeedProcedure
	for _, c := range []struct {
		procedure, query, header string
		status                   int
		text                     string
	}{
		{feed, "", "", http.StatusBadRequest, "reader_id"},
		{feed, "?reader_id=ann", "", http.StatusBadRequest, `"reader_id" is no parameter`},
		{feed, "?message=%7B%22reader%22:%22ann%22%7D", "", http.StatusBadRequest, "reader"},
		{feed, "?message=%", "", http.StatusBadRequest, "escaped"},
		{feed, "?message=x", "", http.StatusBadRequest, "WatchFeedRequest"},
		{feed, "?encoding=proto&message=x", "", http.StatusBadRequest, "encoding=json"},
		{feed, "?message=%7B%22readerId%22:%22ann%22%7D", "x", http.StatusBadRequest, "position"},
		{connectv1.EventServiceWatchProcedure, "", "x", http.StatusBadRequest, "after"},
		{connectv1.GraphServiceScanFollowersProcedure, "", "", http.StatusMethodNotAllowed, "POST"},
	} {
		e := w.eventSource(t, c.procedure+c.query, "", "Last-Event-ID", c.header)
		if status, text := e.failure(); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s%s: %d %q", c.procedure, c.query, status, text)
		}
	}
	e := w.eventSource(t, feed, `{"readerId":"ann"}`)
	e.next(new(skeinv1.WatchFeedResponse))
	status, text := w.eventSource(t, feed, `{"readerId":"ann"}`).failure()
	if status != http.StatusTooManyRequests {
		t.Errorf("beyond the limit: %d %q", status, text)
	}
}

// TestEventsEnd: a stream that the service ends says why.
func TestEventsEnd(t *testing.T) {
	w := newWorld(t, withAllStores)
	e := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, `{"readerId":"ann"}`)
	e.next(new(skeinv1.WatchFeedResponse))
	w.server.cancelServer()
	for e.lines.Scan() {
		if e.lines.Text() == "event: end" && e.lines.Scan() && strings.Contains(e.lines.Text(), `"code":"unavailable"`) {
			return
		}
	}
	t.Errorf("no end: %v", e.lines.Err())
}

// TestEventsAccess: a caller who may not call the method gets no stream by GET either.
func TestEventsAccess(t *testing.T) {
	g := newGuarded(t)
	feed := connectv1.FeedServiceWatchFeedProcedure
	for _, c := range []struct {
		procedure, token, message string
		status                    int
	}{
		{feed, "", `{"readerId":"ann"}`, http.StatusUnauthorized},
		{feed, g.tokens["old"], `{"readerId":"ann"}`, http.StatusUnauthorized},
		{feed, g.tokens["admin"], `{"readerId":"ann"}`, http.StatusForbidden},
		{feed, g.tokens["ann"], `{"readerId":"bob"}`, http.StatusForbidden},
		{connectv1.EventServiceWatchProcedure, g.tokens["reader"], "", http.StatusForbidden},
		{connectv1.EventServiceWatchProcedure, g.tokens["offline"], "", http.StatusOK},
	} {
		e := g.eventSource(t, c.procedure, c.message, "Authorization", "Bearer "+c.token)
		if e.res.StatusCode != c.status {
			t.Errorf("%s %s: %s", c.procedure, c.message, e.res.Status)
		}
		if c.status == http.StatusOK {
			e.next(new(skeinv1.WatchResponse))
		}
	}
}
