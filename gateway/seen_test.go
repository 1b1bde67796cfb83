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
	"google.golang.org/protobuf/proto"
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

// history makes an event one that happened as a month began, so many months ago.
func history(ev *skeinv1.Event, offset uint64, monthsAgo int) *skeinv1.Event {
	now := time.Now().UTC()
	ev.Source, ev.Offset = "test", offset
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
		c.req.ItemIds, c.req.AtLeast = candidates, at
		res := ask(w, w.seenClient.FilterSeen, c.req)
		if diff := cmp.Diff(c.want, res.GetUnseenIndexes()); diff != "" || res.GetMonthsRead() != c.months || res.GetPosition() != at {
			t.Errorf("%s: %s of %d months, at %s", name, diff, res.GetMonthsRead(), res.GetPosition())
		}
	}
	res := ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", NumericIds: []uint64{41, 42, 7, 42, 1 << 63}})
	if diff := cmp.Diff([]uint32{0, 4}, res.GetUnseenIndexes()); diff != "" {
		t.Errorf("numbers: %s", diff)
	}
	// Without candidates there is an answer, too, for its position.
	res = ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "nobody"})
	if len(res.GetUnseenIndexes()) != 0 || res.GetPosition() != at || res.GetMonthsRead() != 4 {
		t.Error("no candidates: ", res)
	}
	if w.count("skein_seen_filters_total", "by", "filter") != 7 || w.count("skein_seen_candidates_total", "answer", "seen") == 0 ||
		w.count("skein_seen_candidates_total", "answer", "unseen") == 0 || w.count("skein_seen_months_read_total") != 4+1+6+4+6+4+4 {
		t.Error("the questions are not counted")
	}
	at = w.publish(seenCleared("ann"))
	res = ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: candidates, AtLeast: at})
	if len(res.GetUnseenIndexes()) != len(candidates) {
		t.Error("after all was cleared: ", res)
	}
}

// The settings of the store are those of the answers.
func TestFilterSeenByTheSettingsOfTheStore(t *testing.T) {
	w := newWorld(t, withSeen, func(o *worldOptions) { o.seen.Window, o.seen.Retention = 2, 3 })
	at := w.publish(history(played("ann", "1"), 1, 1), history(played("ann", "2"), 2, 2), history(played("ann", "3"), 3, 3))
	for window, want := range map[int32][]uint32{0: {1, 2}, 1: {0, 1, 2}, 2: {1, 2}, 3: {2}, 1<<31 - 1: {2}} {
		res := ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{
			UserId: "ann", ItemIds: []string{"1", "2", "3"}, WindowMonths: window, AtLeast: at,
		})
		months := min(window, 3)
		if window == 0 {
			months = 2
		}
		if diff := cmp.Diff(want, res.GetUnseenIndexes()); diff != "" || res.GetMonthsRead() != months {
			t.Errorf("window %d: %s of %d months", window, diff, res.GetMonthsRead())
		}
	}
}

// Ten thousand candidates as long as they may be pass, in either encoding, also where JSON escapes
// their letters.
func TestFilterSeenOfManyCandidates(t *testing.T) {
	w := newWorld(t, withSeen)
	candidate := func(i int) string { return strings.Repeat("é", 60) + fmt.Sprintf("%08d", i) }
	req := &skeinv1.FilterSeenRequest{UserId: "ann"}
	var plays []*skeinv1.Event
	var want []uint32
	for i := range seenservice.MaxCandidates {
		req.ItemIds = append(req.ItemIds, candidate(i))
		if i%100 == 0 {
			plays = append(plays, played("ann", candidate(i)))
		} else {
			want = append(want, uint32(i))
		}
	}
	req.AtLeast = w.publish(plays...)
	inJSON, err := protojson.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []struct {
		as   string
		body []byte
	}{{"proto", binary}, {"json", inJSON}, {"json", bytes.ReplaceAll(inJSON, []byte("é"), []byte(`\u00e9`))}} {
		post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.SeenServiceFilterSeenProcedure, bytes.NewReader(sent.body))
		if err != nil {
			t.Fatal(err)
		}
		post.Header.Set("Content-Type", "application/"+sent.as)
		res, err := w.http.Do(post)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s, %d bytes: %s", sent.as, len(sent.body), res.Status)
		}
	}
	res := ask(w, w.seenClient.FilterSeen, req)
	missing := 0
	for _, i := range want {
		if _, ok := slices.BinarySearch(res.GetUnseenIndexes(), i); !ok {
			missing++
		}
	}
	if n := len(res.GetUnseenIndexes()); n > len(want) || missing > 30 || n+missing != len(want) {
		t.Errorf("%d unseen, of which %d are missing", n, missing)
	}
	numbers := &skeinv1.FilterSeenRequest{UserId: "ann"}
	for i := range seenservice.MaxCandidates {
		numbers.NumericIds = append(numbers.NumericIds, 1<<63+uint64(i))
	}
	if n := len(ask(w, w.seenClient.FilterSeen, numbers).GetUnseenIndexes()); n < seenservice.MaxCandidates-30 {
		t.Errorf("%d numbers are unseen", n)
	}
}

func TestListServed(t *testing.T) {
	w := newWorld(t, withSeen)
	if res := ask(w, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: "ann"}); len(res.GetItemIds()) != 0 || res.GetPosition() == "" {
		t.Error("of nobody: ", res)
	}
	at := w.publish(served("ann", "a", "b", "c"), served("ann", "d", "a"), served("bob", "x"))
	res := ask(w, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: "ann", AtLeast: at})
	if diff := cmp.Diff([]string{"d", "a", "b", "c"}, res.GetItemIds()); diff != "" || res.GetPosition() != at {
		t.Error(diff, res)
	}
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
		t.Error(diff)
	}
}

func TestSeenBadInput(t *testing.T) {
	w := newWorld(t, withSeen)
	many := make([]string, seenservice.MaxCandidates+1)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	ahead := w.log.Position(99).String()
	for name, c := range map[string]struct {
		req                 *skeinv1.FilterSeenRequest
		reason, field, text string
	}{
		"no user":           {&skeinv1.FilterSeenRequest{}, "INVALID_FIELD", "user_id", "1 to 128 bytes"},
		"an empty item":     {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", ""}}, "INVALID_FIELD", "item_ids[1]", "1 to 128 bytes"},
		"an item too long":  {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{strings.Repeat("x", 129)}}, "INVALID_FIELD", "item_ids[0]", "128"},
		"a space":           {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", "b", "c d"}}, "INVALID_FIELD", "item_ids[2]", "128 bytes"},
		"too many":          {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: many}, "INVALID_FIELD", "item_ids", "10000"},
		"too many numbers":  {&skeinv1.FilterSeenRequest{UserId: "ann", NumericIds: make([]uint64, seenservice.MaxCandidates+1)}, "INVALID_FIELD", "numeric_ids", "10000"},
		"both":              {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a"}, NumericIds: []uint64{1}}, "INVALID_FIELD", "item_ids", "not both"},
		"negative window":   {&skeinv1.FilterSeenRequest{UserId: "ann", WindowMonths: -1}, "INVALID_FIELD", "window_months", "0 or more"},
		"no position":       {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: "x"}, "INVALID_POSITION", "at_least", "no position"},
		"a long position":   {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: strings.Repeat("x", 257)}, "INVALID_FIELD", "at_least", "256"},
		"beyond the log":    {&skeinv1.FilterSeenRequest{UserId: "ann", AtLeast: ahead}, "INVALID_POSITION", "at_least", "beyond the end"},
		"many empty to say": {&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: make([]string, 1000)}, "INVALID_FIELD", "item_ids[0]", "and at least 24 more"},
	} {
		t.Log(name)
		_, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(c.req))
		wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		if err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v does not say %q", err, c.text)
		}
	}
	for _, req := range []*skeinv1.ListServedRequest{{}, {UserId: "a b"}} {
		_, err := w.seenClient.ListServed(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id")
	}
	_, err := w.seenClient.ListServed(t.Context(), connect.NewRequest(&skeinv1.ListServedRequest{UserId: "ann", AtLeast: ahead}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
}

// The check by hand refuses exactly what the rules of the proto and the rules of ids refuse.
func TestHandCheckOfFilterSeen(t *testing.T) {
	r, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.FilterSeenRequest{
			UserId: id.Draw(t, "user"), ItemIds: rapid.SliceOfN(id, 0, 3).Draw(t, "items"),
			NumericIds:   rapid.SliceOfN(rapid.Uint64(), 0, 2).Draw(t, "numbers"),
			WindowMonths: rapid.SampledFrom([]int32{-1 << 31, -1, 0, 1, 1<<31 - 1}).Draw(t, "window"),
			AtLeast:      rapid.SampledFrom([]string{"", "x", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}
		bad := len(r.Check(req)) > 0
		for _, id := range append(slices.Clone(req.GetItemIds()), req.GetUserId()) {
			bad = bad || events.ValidateID(id) != nil
		}
		if got := seenservice.ValidateFilterSeen(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
	for n, bad := range map[int]bool{0: false, 1: false, seenservice.MaxCandidates: false, seenservice.MaxCandidates + 1: true} {
		items, numbers := &skeinv1.FilterSeenRequest{UserId: "v"}, &skeinv1.FilterSeenRequest{UserId: "v", NumericIds: make([]uint64, n)}
		for i := range n {
			items.ItemIds = append(items.ItemIds, strconv.Itoa(i))
		}
		for _, req := range []*skeinv1.FilterSeenRequest{items, numbers} {
			if got := seenservice.ValidateFilterSeen(req); (len(got) > 0) != bad || (len(r.Check(req)) > 0) != bad {
				t.Errorf("%d candidates: %v by hand", n, got)
			}
		}
	}
}

// A process that is behind answers what it is asked without a position, and waits for one.
func TestSeenAtLeast(t *testing.T) {
	w := newWorld(t, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	at := w.publish(played("ann", "a"), served("ann", "b"))
	filter := &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"a", "b"}}
	if res := ask(w, w.seenClient.FilterSeen, filter); len(res.GetUnseenIndexes()) != 2 {
		t.Error(res)
	}
	filter.AtLeast = at
	_, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(filter))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	_, err = w.seenClient.ListServed(t.Context(), connect.NewRequest(&skeinv1.ListServedRequest{UserId: "ann", AtLeast: at}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	w.fold()
	<-w.seenReady
	res, err := w.seenClient.FilterSeen(t.Context(), connect.NewRequest(filter))
	if err != nil || len(res.Msg.GetUnseenIndexes()) != 0 || res.Header().Get(LagHeader) != "0" {
		t.Error(res, err)
	}
}

// The health of SeenService is that of its store.
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

// A store of something else is refused at once, not when it is asked.
func TestSeenOfAnotherStore(t *testing.T) {
	w := newWorld(t)
	if _, err := New(Options{Log: w.log, Publisher: w.publisher, Hub: w.hub, Graph: w.store, Seen: w.store}); err == nil {
		t.Error("no error")
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
		var asked skeinv1.FilterSeenRequest
		var res skeinv1.FilterSeenResponse
		switch rec.Code {
		case http.StatusOK:
			if err := protojson.Unmarshal(body, &asked); err != nil {
				t.Errorf("%q is answered", body)
			}
			err := protojson.Unmarshal(rec.Body.Bytes(), &res)
			n := len(asked.GetItemIds()) + len(asked.GetNumericIds())
			if err != nil || len(res.GetUnseenIndexes()) > n || !slices.IsSorted(res.GetUnseenIndexes()) || res.GetMonthsRead() < 1 {
				t.Errorf("%q: %s", body, rec.Body)
			}
			for _, i := range res.GetUnseenIndexes() {
				if int(i) >= n {
					t.Errorf("%q: %s", body, rec.Body)
				}
			}
		case http.StatusBadRequest:
		default:
			t.Errorf("%q: %d %s", body, rec.Code, rec.Body)
		}
	})
}
