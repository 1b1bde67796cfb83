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
	t     *testing.T
	res   *http.Response
	lines *bufio.Scanner
	// lastID is the id of the last event.
	lastID string
}

// eventSource calls a method with a message in JSON. An empty message is left out. The header is
// names and values in turn.
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

// next reads the next event into data. It returns the name of the event.
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
				e.t.Fatalf("data %s: %v", value, err)
			}
		case "": // An empty line ends the event.
			return name
		}
	}
	e.t.Fatalf("the stream has ended: %v", e.lines.Err())
	return ""
}

// failure returns the status and the message of the error with which a call was refused.
func (e *eventSource) failure() (status int, text string) {
	e.t.Helper()
	var body struct{ Message string }
	if err := json.NewDecoder(e.res.Body).Decode(&body); err != nil {
		e.t.Fatal(err)
	}
	if got := e.res.Header.Get("Content-Type"); got != "application/json" {
		e.t.Errorf("error: got Content-Type %q, want application/json", got)
	}
	return e.res.StatusCode, body.Message
}

// TestEventsOfFeed checks that a page in a browser can read WatchFeed with EventSource, and that
// EventSource continues after its last event.
func TestEventsOfFeed(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.Origins = []string{"https://app.example"} })
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"))
	message := `{"readerId":"ann","atLeast":"` + at + `"}`
	source := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, message, "Origin", "https://app.example")
	for name, want := range map[string]string{
		"Content-Type":                "text/event-stream",
		"Cache-Control":               "no-store",
		"X-Accel-Buffering":           "no",
		"Access-Control-Allow-Origin": "https://app.example",
	} {
		if got := source.res.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}

	var m skeinv1.WatchFeedResponse
	if name := source.next(&m); name != "" {
		t.Errorf("first event: got name %q, want none", name)
	}
	if m.GetCount() != 1 || m.GetPosition() != at {
		t.Errorf("first event: got %v, want count 1 at %s", &m, at)
	}
	if source.lastID != at {
		t.Errorf("first event: got id %q, want %q", source.lastID, at)
	}

	w.publish(pinned("bob", "", "2"))
	for m.GetCount() != 2 {
		m.Reset()
		source.next(&m)
	}

	// EventSource connects again with the same URL and the last id. The count is not older than
	// that id, although the URL has an older position.
	continued := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, message, "Last-Event-ID", source.lastID)
	m.Reset()
	if continued.next(&m); m.GetCount() != 2 {
		t.Errorf("continued: got %v, want count 2", &m)
	}
}

// TestEventsOfLog checks that EventSource can read the log. With the id of the last event, the
// stream continues with the event after that one.
func TestEventsOfLog(t *testing.T) {
	w := newWorld(t)
	w.publish(follow("ann", "bob"), unfollow("ann", "bob"), follow("ann", "cid"))

	// nextEvent skips messages that have only a position.
	var m skeinv1.WatchResponse
	nextEvent := func(source *eventSource) *skeinv1.Event {
		for {
			m.Reset()
			source.next(&m)
			if m.GetEvent() != nil {
				return m.GetEvent()
			}
		}
	}

	source := w.eventSource(t, connectv1.EventServiceWatchProcedure, `{"after":"EARLIEST","kinds":["user_followed"]}`)
	if event := nextEvent(source); event.GetUserFollowed().GetTargetUserId() != "bob" {
		t.Errorf("first event: got %v, want the follow of bob", event)
	}
	if source.lastID != m.GetPosition() {
		t.Errorf("first event: got id %q, want %q", source.lastID, m.GetPosition())
	}

	// The last id has priority over the position in the message.
	continued := w.eventSource(t, connectv1.EventServiceWatchProcedure, `{"after":"EARLIEST"}`, "Last-Event-ID", source.lastID)
	if event := nextEvent(continued); event.GetUserUnfollowed() == nil {
		t.Errorf("first event after the last id: got %v, want the unfollow", event)
	}
	if event := nextEvent(continued); event.GetUserFollowed().GetTargetUserId() != "cid" {
		t.Errorf("second event after the last id: got %v, want the follow of cid", event)
	}

	// Without a message, the stream begins at the end of the log.
	source = w.eventSource(t, connectv1.EventServiceWatchProcedure, "")
	m.Reset()
	if name := source.next(&m); name != "" || m.GetEvent() != nil || m.GetPosition() == "" {
		t.Errorf("stream without a message: got event %q with %v first, want only a position", name, &m)
	}
}

// TestEventsRefused checks that a call that is refused has an error in JSON, with the status that
// every other call has.
func TestEventsRefused(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.Limits.FeedWatches = 1 })
	feed := connectv1.FeedServiceWatchFeedProcedure
	for _, c := range []struct {
		name, procedure, query, lastID string
		status                         int
		text                           string
	}{
		{"no message", feed, "", "", http.StatusBadRequest, "reader_id"},
		{"an unknown parameter", feed, "?reader_id=ann", "", http.StatusBadRequest, `"reader_id" is no parameter`},
		{"an unknown field", feed, "?message=%7B%22reader%22:%22ann%22%7D", "", http.StatusBadRequest, "reader"},
		{"a bad escape", feed, "?message=%", "", http.StatusBadRequest, "escaped"},
		{"no JSON", feed, "?message=x", "", http.StatusBadRequest, "WatchFeedRequest"},
		{"another encoding", feed, "?encoding=proto&message=x", "", http.StatusBadRequest, "encoding=json"},
		{"a bad id", feed, "?message=%7B%22readerId%22:%22ann%22%7D", "x", http.StatusBadRequest, "position"},
		{"a bad id of the log", connectv1.EventServiceWatchProcedure, "", "x", http.StatusBadRequest, "after"},
		{"a method without EventSource", connectv1.GraphServiceScanFollowersProcedure, "", "", http.StatusMethodNotAllowed, "POST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := w.eventSource(t, c.procedure+c.query, "", "Last-Event-ID", c.lastID)
			if status, text := source.failure(); status != c.status || !strings.Contains(text, c.text) {
				t.Errorf("%s%s: got status %d and %q, want %d and a text with %q", c.procedure, c.query, status, text, c.status, c.text)
			}
		})
	}

	// A second stream is beyond the limit.
	w.eventSource(t, feed, `{"readerId":"ann"}`).next(new(skeinv1.WatchFeedResponse))
	status, text := w.eventSource(t, feed, `{"readerId":"ann"}`).failure()
	if status != http.StatusTooManyRequests {
		t.Errorf("stream beyond the limit: got status %d and %q, want %d", status, text, http.StatusTooManyRequests)
	}
}

// TestEventsEnd checks that a stream that the server ends has a last event that says why.
func TestEventsEnd(t *testing.T) {
	w := newWorld(t, withAllStores)
	source := w.eventSource(t, connectv1.FeedServiceWatchFeedProcedure, `{"readerId":"ann"}`)
	source.next(new(skeinv1.WatchFeedResponse))
	w.server.cancelServer()
	for source.lines.Scan() {
		if source.lines.Text() == "event: end" && source.lines.Scan() && strings.Contains(source.lines.Text(), `"code":"unavailable"`) {
			return
		}
	}
	t.Errorf("the stream has ended (error %v) without an event about the end", source.lines.Err())
}

// TestEventsAccess checks that a caller who may not call the method gets no stream by GET either.
func TestEventsAccess(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	feed := connectv1.FeedServiceWatchFeedProcedure
	for _, c := range []struct {
		name, procedure, token, message string
		status                          int
	}{
		{"no token", feed, "", `{"readerId":"ann"}`, http.StatusUnauthorized},
		{"an expired token", feed, g.tokens["old"], `{"readerId":"ann"}`, http.StatusUnauthorized},
		{"another role", feed, g.tokens["admin"], `{"readerId":"ann"}`, http.StatusForbidden},
		{"another user", feed, g.tokens["ann"], `{"readerId":"bob"}`, http.StatusForbidden},
		{"the log without its role", connectv1.EventServiceWatchProcedure, g.tokens["reader"], "", http.StatusForbidden},
		{"the log", connectv1.EventServiceWatchProcedure, g.tokens["offline"], "", http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := g.eventSource(t, c.procedure, c.message, "Authorization", "Bearer "+c.token)
			if source.res.StatusCode != c.status {
				t.Errorf("%s %s: got status %s, want %d", c.procedure, c.message, source.res.Status, c.status)
			}
			if c.status == http.StatusOK {
				source.next(new(skeinv1.WatchResponse))
			}
		})
	}
}
