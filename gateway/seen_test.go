package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/seenservice"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func served(user string, items ...string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: user, ItemIds: items}}}
}

func seenCleared(user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: user}}}
}

// history makes an event one that is imported, and that happened at the begin of a month, so many
// months ago.
func history(ev *skeinv1.Event, offset uint64, monthsAgo int) *skeinv1.Event {
	now := time.Now().UTC()
	ev.Source = "test"
	ev.Offset = offset
	ev.OccurredAt = timestamppb.New(time.Date(now.Year(), now.Month()-time.Month(monthsAgo), 1, 0, 0, 0, 0, time.UTC))
	return ev
}

func TestFilterSeen(t *testing.T) {
	w := newWorld(t, withSeen)
	at := w.publish(
		played("ann", "a"), played("ann", "42"), served("ann", "s1", "7"), played("bob", "b"),
		history(played("ann", "month-1"), 1, 1), history(played("ann", "month-3"), 2, 3),
		history(played("ann", "month-5"), 3, 5), history(played("ann", "month-6"), 4, 6),
	)
	candidates := []string{"new", "a", "42", "s1", "b", "month-1", "a", "month-3", "month-5", "month-6", "new"}
	wantMonthsRead := 0
	for name, c := range map[string]struct {
		req    *skeinv1.FilterSeenRequest
		want   []uint32
		months int32
	}{
		"default":          {&skeinv1.FilterSeenRequest{UserId: "ann"}, []uint32{0, 4, 8, 9, 10}, 4},
		"this month":       {&skeinv1.FilterSeenRequest{UserId: "ann", WindowMonths: 1}, []uint32{0, 4, 5, 7, 8, 9, 10}, 1},
		"all that is kept": {&skeinv1.FilterSeenRequest{UserId: "ann", WindowMonths: 1000}, []uint32{0, 4, 9, 10}, 6},
		"plays only":       {&skeinv1.FilterSeenRequest{UserId: "ann", IgnoreServed: true}, []uint32{0, 3, 4, 8, 9, 10}, 4},
		"of another":       {&skeinv1.FilterSeenRequest{UserId: "bob", WindowMonths: 6}, []uint32{0, 1, 2, 3, 5, 6, 7, 8, 9, 10}, 6},
	} {
		c.req.ItemIds = candidates
		c.req.AtLeast = at
		res := ask(w, w.seenClient.FilterSeen, c.req)
		if diff := cmp.Diff(c.want, res.GetUnseenIndexes()); diff != "" {
			t.Errorf("%s: unseen indexes (-want +got):\n%s", name, diff)
		}
		if res.GetMonthsRead() != c.months || res.GetPosition() != at {
			t.Errorf("%s: got %d months at %s, want %d months at %s", name, res.GetMonthsRead(), res.GetPosition(), c.months, at)
		}
		wantMonthsRead += int(c.months)
	}

	res := ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", NumericIds: []uint64{41, 42, 7, 42, 1 << 63}})
	if diff := cmp.Diff([]uint32{0, 4}, res.GetUnseenIndexes()); diff != "" {
		t.Errorf("numeric ids: unseen indexes (-want +got):\n%s", diff)
	}
	wantMonthsRead += 4

	// Without candidates there is an answer, too, because its position may be useful.
	res = ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "nobody"})
	if len(res.GetUnseenIndexes()) != 0 || res.GetPosition() != at || res.GetMonthsRead() != 4 {
		t.Errorf("no candidates: got %v, want no indexes of 4 months at %s", res, at)
	}
	wantMonthsRead += 4

	if n := w.count("skein_seen_filters_total", "by", "filter"); n != 7 {
		t.Errorf("metric of filters: got %v, want 7", n)
	}
	for _, answer := range []string{"seen", "unseen"} {
		if n := w.count("skein_seen_candidates_total", "answer", answer); n == 0 {
			t.Errorf("metric of %s candidates: got 0, want more", answer)
		}
	}
	if n := w.count("skein_seen_months_read_total"); n != float64(wantMonthsRead) {
		t.Errorf("metric of months read: got %v, want %d", n, wantMonthsRead)
	}

	at = w.publish(seenCleared("ann"))
	res = ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: candidates, AtLeast: at})
	if n := len(res.GetUnseenIndexes()); n != len(candidates) {
		t.Errorf("after seen_cleared: got %d unseen candidates, want all %d", n, len(candidates))
	}
}

// TestFilterSeenByTheSettingsOfTheStore checks that the window and the retention of an answer are
// those of the store.
func TestFilterSeenByTheSettingsOfTheStore(t *testing.T) {
	w := newWorld(t, withSeen, func(o *worldOptions) {
		o.seen.Window = 2
		o.seen.Retention = 3
	})
	at := w.publish(history(played("ann", "1"), 1, 1), history(played("ann", "2"), 2, 2), history(played("ann", "3"), 3, 3))
	for _, c := range []struct {
		window int32
		want   []uint32
		months int32
	}{
		{0, []uint32{1, 2}, 2},
		{1, []uint32{0, 1, 2}, 1},
		{2, []uint32{1, 2}, 2},
		{3, []uint32{2}, 3},
		{1<<31 - 1, []uint32{2}, 3},
	} {
		t.Run(fmt.Sprintf("window of %d months", c.window), func(t *testing.T) {
			res := ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{
				UserId: "ann", ItemIds: []string{"1", "2", "3"}, WindowMonths: c.window, AtLeast: at,
			})
			if diff := cmp.Diff(c.want, res.GetUnseenIndexes()); diff != "" {
				t.Errorf("unseen indexes (-want +got):\n%s", diff)
			}
			if res.GetMonthsRead() != c.months {
				t.Errorf("got %d months read, want %d", res.GetMonthsRead(), c.months)
			}
		})
	}
}

// TestFilterSeenOfManyCandidates checks that ten thousand candidates of the maximum length are
// accepted in both encodings, even where JSON escapes their letters.
func TestFilterSeenOfManyCandidates(t *testing.T) {
	w := newWorld(t, withSeen)

	// Each hundredth candidate was played.
	candidate := func(i int) string { return strings.Repeat("é", 60) + fmt.Sprintf("%08d", i) }
	req := &skeinv1.FilterSeenRequest{UserId: "ann"}
	var plays []*skeinv1.Event
	var unseen []uint32
	for i := range seenservice.MaxCandidates {
		req.ItemIds = append(req.ItemIds, candidate(i))
		if i%100 == 0 {
			plays = append(plays, played("ann", candidate(i)))
		} else {
			unseen = append(unseen, uint32(i))
		}
	}
	req.AtLeast = w.publish(plays...)

	inJSON, err := protojson.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, encoding string
		body           []byte
	}{
		{"proto", "proto", marshal(t, req)},
		{"JSON", "json", inJSON},
		{"JSON with escapes", "json", bytes.ReplaceAll(inJSON, []byte("é"), []byte(`\u00e9`))},
	} {
		t.Run(c.name, func(t *testing.T) {
			post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.SeenServiceFilterSeenProcedure, bytes.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			post.Header.Set("Content-Type", "application/"+c.encoding)
			res, err := w.http.Do(post)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("request of %d bytes: got status %s, want 200", len(c.body), res.Status)
			}
		})
	}

	// The filter may take a few candidates for seen that are not, but no others for unseen.
	const mostFalseSeen = 30
	res := ask(w, w.seenClient.FilterSeen, req)
	falseSeen := 0
	for _, i := range unseen {
		if _, ok := slices.BinarySearch(res.GetUnseenIndexes(), i); !ok {
			falseSeen++
		}
	}
	if falseSeen > mostFalseSeen {
		t.Errorf("%d candidates are seen by mistake, want at most %d", falseSeen, mostFalseSeen)
	}
	if got, want := len(res.GetUnseenIndexes()), len(unseen)-falseSeen; got != want {
		t.Errorf("got %d unseen candidates, want %d", got, want)
	}

	numbers := &skeinv1.FilterSeenRequest{UserId: "ann"}
	for i := range seenservice.MaxCandidates {
		numbers.NumericIds = append(numbers.NumericIds, 1<<63+uint64(i))
	}
	got := len(ask(w, w.seenClient.FilterSeen, numbers).GetUnseenIndexes())
	if least := seenservice.MaxCandidates - mostFalseSeen; got < least {
		t.Errorf("numeric ids: got %d unseen candidates, want at least %d", got, least)
	}
}

func TestListServed(t *testing.T) {
	w := newWorld(t, withSeen)
	res := ask(w, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: "ann"})
	if len(res.GetItemIds()) != 0 || res.GetPosition() == "" {
		t.Errorf("before any serve: got %v, want no items and a position", res)
	}

	// The latest serve comes first, and a repeated item is at the place of its latest serve.
	at := w.publish(served("ann", "a", "b", "c"), served("ann", "d", "a"), served("bob", "x"))
	res = ask(w, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: "ann", AtLeast: at})
	if diff := cmp.Diff([]string{"d", "a", "b", "c"}, res.GetItemIds()); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	if res.GetPosition() != at {
		t.Errorf("got position %s, want %s", res.GetPosition(), at)
	}

	// The list has at most a hundred items.
	var want []string
	for i := range 3 {
		var items []string
		for j := range 60 {
			items = append(items, fmt.Sprint(100*i+j))
		}
		want = append(items, want...)
		at = w.publish(served("ann", items...))
	}
	res = ask(w, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: "ann", AtLeast: at})
	if diff := cmp.Diff(want[:100], res.GetItemIds()); diff != "" {
		t.Errorf("latest hundred items (-want +got):\n%s", diff)
	}
}

func TestSeenBadInput(t *testing.T) {
	w := newWorld(t, withSeen)
	tooMany := make([]string, seenservice.MaxCandidates+1)
	for i := range tooMany {
		tooMany[i] = strconv.Itoa(i)
	}
	beyondLog := w.log.Position(99).String()
	for name, c := range map[string]struct {
		req                 *skeinv1.FilterSeenRequest
		reason, field, text string
	}{
		"no user":          {&skeinv1.FilterSeenRequest{}, "INVALID_FIELD", "user_id", "1 to 128 bytes"},
		"an empty item":    {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", ""}}, "INVALID_FIELD", "item_ids[1]", "1 to 128 bytes"},
		"an item too long": {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{strings.Repeat("x", 129)}}, "INVALID_FIELD", "item_ids[0]", "128"},
		"a space":          {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", "b", "c d"}}, "INVALID_FIELD", "item_ids[2]", "128 bytes"},
		"too many":         {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: tooMany}, "INVALID_FIELD", "item_ids", "10000"},
		"too many numbers": {
			&skeinv1.FilterSeenRequest{UserId: "ann", NumericIds: make([]uint64, seenservice.MaxCandidates+1)},
			"INVALID_FIELD", "numeric_ids", "10000",
		},
		"items and numbers": {
			&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a"}, NumericIds: []uint64{1}},
			"INVALID_FIELD", "item_ids", "not both",
		},
		"negative window":  {&skeinv1.FilterSeenRequest{UserId: "ann", WindowMonths: -1}, "INVALID_FIELD", "window_months", "0 or more"},
		"no position":      {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: "x"}, "INVALID_POSITION", "at_least", "no position"},
		"a long position":  {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: strings.Repeat("x", 257)}, "INVALID_FIELD", "at_least", "256"},
		"beyond the log":   {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: beyondLog}, "INVALID_POSITION", "at_least", "beyond the end"},
		"many empty items": {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: make([]string, 1000)}, "INVALID_FIELD", "item_ids[0]", "and at least 24 more"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got error %q, want one that contains %q", err, c.text)
			}
		})
	}

	for name, c := range map[string]struct {
		req           *skeinv1.ListServedRequest
		reason, field string
	}{
		"no user":        {&skeinv1.ListServedRequest{}, "INVALID_FIELD", "user_id"},
		"a space":        {&skeinv1.ListServedRequest{UserId: "a b"}, "INVALID_FIELD", "user_id"},
		"beyond the log": {&skeinv1.ListServedRequest{UserId: "ann", AtLeast: beyondLog}, "INVALID_POSITION", "at_least"},
	} {
		t.Run("ListServed "+name, func(t *testing.T) {
			_, err := w.seenClient.ListServed(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestHandCheckOfFilterSeen checks that the hand-written validation refuses exactly the requests
// that the rules in the proto file and the rules for ids refuse.
func TestHandCheckOfFilterSeen(t *testing.T) {
	rules, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}

	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.FilterSeenRequest{
			UserId:       id.Draw(t, "user"),
			ItemIds:      rapid.SliceOfN(id, 0, 3).Draw(t, "items"),
			NumericIds:   rapid.SliceOfN(rapid.Uint64(), 0, 2).Draw(t, "numbers"),
			WindowMonths: rapid.SampledFrom([]int32{-1 << 31, -1, 0, 1, 1<<31 - 1}).Draw(t, "window"),
			AtLeast:      rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}

		wantRefused := len(rules.Check(req)) > 0
		for _, id := range append(slices.Clone(req.GetItemIds()), req.GetUserId()) {
			if events.ValidateID(id) != nil {
				wantRefused = true
			}
		}
		if got := seenservice.ValidateFilterSeen(req); (len(got) > 0) != wantRefused {
			t.Fatalf("by hand: got violations %v, refused by the rules: %v, request %v", got, wantRefused, req)
		}
	})

	// The numbers of candidates are too large to be drawn.
	for count, wantRefused := range map[int]bool{0: false, 1: false, seenservice.MaxCandidates: false, seenservice.MaxCandidates + 1: true} {
		items := &skeinv1.FilterSeenRequest{UserId: "v"}
		for i := range count {
			items.ItemIds = append(items.ItemIds, strconv.Itoa(i))
		}
		numbers := &skeinv1.FilterSeenRequest{UserId: "v", NumericIds: make([]uint64, count)}
		for name, req := range map[string]*skeinv1.FilterSeenRequest{"items": items, "numbers": numbers} {
			if got := seenservice.ValidateFilterSeen(req); (len(got) > 0) != wantRefused {
				t.Errorf("%d %s by hand: got violations %v, want refused: %v", count, name, got, wantRefused)
			}
			if got := rules.Check(req); (len(got) > 0) != wantRefused {
				t.Errorf("%d %s by the rules: got violations %v, want refused: %v", count, name, got, wantRefused)
			}
		}
	}
}

// TestSeenAtLeast checks that a process that is behind the log answers from the state that it has
// if the request names no position, and otherwise waits for the position.
func TestSeenAtLeast(t *testing.T) {
	w := newWorld(t, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	at := w.publish(played("ann", "a"), served("ann", "b"))
	filter := &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", "b"}}
	if res := ask(w, w.seenClient.FilterSeen, filter); len(res.GetUnseenIndexes()) != 2 {
		t.Errorf("without a position: got %v, want 2 unseen items", res)
	}

	filter.AtLeast = at
	_, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(filter))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	_, err = w.seenClient.ListServed(t.Context(), connect.NewRequest(&skeinv1.ListServedRequest{UserId: "ann", AtLeast: at}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")

	w.fold()
	<-w.seenReady
	res, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(filter))
	if err != nil {
		t.Fatalf("after folding: %v", err)
	}
	if len(res.Msg.GetUnseenIndexes()) != 0 {
		t.Errorf("after folding: got %v, want no unseen items", res.Msg)
	}
	if lag := res.Header().Get(LagHeader); lag != "0" {
		t.Errorf("after folding: got %s %q, want 0", LagHeader, lag)
	}
}

// TestHealthOfSeen checks that SeenService is healthy exactly while its store folds.
func TestHealthOfSeen(t *testing.T) {
	w := newWorld(t, withSeen)
	w.wantHealth("with its store", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.SeenServiceName: serving})
	w.unfold()
	w.wantHealth("without", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.SeenServiceName: notServing})

	if err := w.seen.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := w.seenClient.FilterSeen(context.Background(), connect.NewRequest(&skeinv1.FilterSeenRequest{UserId: "ann"}))
	wantError(t, err, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}

// TestSeenOfAnotherStore checks that New refuses a store of another projection, and not only the
// first call that needs the store.
func TestSeenOfAnotherStore(t *testing.T) {
	w := newWorld(t)
	if _, err := New(Options{Log: w.log, Publisher: w.publisher, Hub: w.hub, Graph: w.store, Seen: w.store}); err == nil {
		t.Error("New with the graph as the seen store: got no error")
	}
}

func FuzzFilterSeenJSON(f *testing.F) {
	f.Add([]byte(`{"userId":"ann","itemIds":["a","b","a"],"windowMonths":2}`))
	f.Add([]byte(`{"userId":"ann","numericIds":["42",7],"ignoreServed":true}`))
	f.Add([]byte(`{"userId":"ann","numericIds":["-1"]}`))
	f.Add([]byte(`{"userId":"ann","itemIds":["\u0000"],"windowMonths":-1,"atLeast":"x"}`))
	f.Add([]byte(`[]`))

	w := newWorld(f, withSeen, func(o *worldOptions) { o.AllowedHosts = []string{"*"} })
	w.publish(played("ann", "a"), played("ann", "42"))
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, connectv1.SeenServiceFilterSeenProcedure, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, req)

		// A request is refused as a bad one, or is answered.
		if rec.Code == http.StatusBadRequest {
			return
		}
		if rec.Code != http.StatusOK {
			t.Fatalf("request %q: got status %d and %s, want 200 or 400", body, rec.Code, rec.Body)
		}
		var asked skeinv1.FilterSeenRequest
		if err := protojson.Unmarshal(body, &asked); err != nil {
			t.Errorf("request %q: got an answer, want a refusal: %v", body, err)
		}
		var res skeinv1.FilterSeenResponse
		if err := protojson.Unmarshal(rec.Body.Bytes(), &res); err != nil {
			t.Fatalf("request %q: got answer %s: %v", body, rec.Body, err)
		}

		// The indexes are those of candidates, in order.
		candidates := len(asked.GetItemIds()) + len(asked.GetNumericIds())
		unseen := res.GetUnseenIndexes()
		if len(unseen) > candidates || !slices.IsSorted(unseen) {
			t.Errorf("request %q: got unseen indexes %v, want sorted indexes of %d candidates", body, unseen, candidates)
		}
		for _, i := range unseen {
			if int(i) >= candidates {
				t.Errorf("request %q: got unseen index %d, want indexes of %d candidates", body, i, candidates)
			}
		}
		if res.GetMonthsRead() < 1 {
			t.Errorf("request %q: got %d months read, want at least 1", body, res.GetMonthsRead())
		}
	})
}
