package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/counterservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func liked(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
}

// reacted and unreacted are reactions of a kind.
func reacted(user, item, kind string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item, Kind: kind}}}
}

func unreacted(user, item, kind string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item, Kind: kind}}}
}

// likesOf returns how many users like what is counted.
func likesOf(c *skeinv1.Counters) uint32 {
	for _, r := range c.GetReactions() {
		if r.GetKind() == "like" {
			return r.GetCount()
		}
	}
	return 0
}

// repinned is a pin that shows an item and names the pin that it is from.
func repinned(owner, pin, item, from, fromPin string) *skeinv1.Event {
	ev := showing(owner, pin, item)
	ev.GetPinCreated().RepinOf = &skeinv1.Pin{OwnerId: from, PinId: fromPin}
	return ev
}

func countsOfUser(id string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: id}}
}

func countsOfBoard(owner, id string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: board(owner, id)}}
}

func countsOfItem(id string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: id}}
}

func (w *world) countersOf(at string, keys ...*skeinv1.CounterKey) []*skeinv1.Counters {
	w.t.Helper()
	res := ask(w, w.counterClient.BatchGetCounters, &skeinv1.BatchGetCountersRequest{Keys: keys, AtLeast: at})
	if res.GetPosition() != at && at != "" {
		w.t.Errorf("answered at %s, not at %s", res.GetPosition(), at)
	}
	return res.GetCounters()
}

func TestBatchGetCounters(t *testing.T) {
	w := newWorld(t, withCounters)
	at := w.publish(
		createBoard("bob", "cats", "Cats"), createBoard("bob", "dogs", "Dogs"),
		follow("ann", "bob"), follow("cid", "bob"), followBoard("dan", "bob", "cats"), unfollowBoard("cid", "bob", "cats"),
		pinned("bob", "cats", "b1"), pinned("bob", "cats", "b2"), pinned("bob", "", "b3"), unpinned("bob", "b2"),
		repinned("ann", "r1", "b1", "bob", "b1"), repinned("cid", "r2", "b1", "ann", "r1"),
		played("ann", "b1"), played("ann", "b1"), played("cid", "b1"), played("ann", "unpinned"),
		liked("ann", "b1"), liked("ann", "b1"), liked("cid", "b1"),
	)
	got := w.countersOf(at,
		countsOfUser("bob"), countsOfItem("b1"), countsOfBoard("bob", "cats"), countsOfBoard("bob", ""), countsOfUser("ann"), countsOfBoard("bob", "none"),
		countsOfItem("unpinned"), countsOfUser("nobody"), countsOfItem("nothing"), countsOfItem("b1"),
	)
	item := &skeinv1.Counters{PlayCount: 3, Reactions: []*skeinv1.ReactionCount{{Kind: "like", Count: 2}}, RepinCount: 2}
	want := []*skeinv1.Counters{
		{PinCount: 2, BoardCount: 2, FollowerCount: 3},
		item,
		{PinCount: 1, FollowerCount: 2},
		{PinCount: 1, FollowerCount: 2},
		{PinCount: 1, PlayCount: 3},
		{},
		{PlayCount: 1},
		{},
		{},
		item,
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	// The log continues, and with it the counts.
	at = w.publish(&skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "ann", ItemId: "b1"}}})
	if n := likesOf(w.countersOf(at, countsOfItem("b1"))[0]); n != 1 {
		t.Errorf("%d likes", n)
	}
	var many []*skeinv1.CounterKey
	for i := range 1000 {
		many = append(many, []*skeinv1.CounterKey{countsOfItem("b1"), countsOfUser(fmt.Sprint(i)), countsOfBoard("bob", "cats")}[i%3])
	}
	for i, c := range w.countersOf(at, many...) {
		if plays, pins := []int64{3, 0, 0}[i%3], []uint32{0, 0, 1}[i%3]; c.GetPlayCount() != plays || c.GetPinCount() != pins {
			t.Errorf("key %d: %v", i, c)
		}
	}
}

// TestCountersBehind: followers and boards are those of the graph, all else is that of counters,
// and an answer says what both contain.
func TestCountersBehind(t *testing.T) {
	for _, graphAhead := range []bool{false, true} {
		w := newWorld(t, withCounters, asleep)
		first := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), played("bob", "1"))
		second := w.publish(follow("cid", "bob"), createBoard("bob", "art", "Art"), pinned("bob", "art", "2"), played("bob", "1"))
		envelopes := w.envelopes(2)
		ahead, behind := w.counters.Serving(), w.store.Serving()
		want := &skeinv1.Counters{PinCount: 2, FollowerCount: 1, PlayCount: 2}
		if graphAhead {
			ahead, behind = behind, ahead
			want = &skeinv1.Counters{PinCount: 1, BoardCount: 1, FollowerCount: 2, PlayCount: 1}
		}
		if err := errors.Join(ahead.Fold(envelopes), behind.Fold(envelopes[:1])); err != nil {
			t.Fatal(err)
		}
		check := func(want *skeinv1.Counters, at string, keys ...*skeinv1.CounterKey) {
			t.Helper()
			res := ask(w, w.counterClient.BatchGetCounters, &skeinv1.BatchGetCountersRequest{Keys: keys})
			if diff := cmp.Diff(want, res.GetCounters()[0], protocmp.Transform()); diff != "" || res.GetPosition() != at {
				t.Errorf("graph ahead %v: at %s, want %s\n%s", graphAhead, res.GetPosition(), at, diff)
			}
		}
		check(want, first, countsOfUser("bob"))
		if !graphAhead {
			check(&skeinv1.Counters{PlayCount: 2}, second, countsOfItem("1")) // the graph counts nothing of it
		}
		if err := behind.Fold(envelopes[1:]); err != nil {
			t.Fatal(err)
		}
		check(&skeinv1.Counters{PinCount: 2, BoardCount: 1, FollowerCount: 2, PlayCount: 2}, second, countsOfUser("bob"))
	}
}

// trending is the list by heat of a scope, as any other list.
func (w *world) trending(scope *skeinv1.ListTrendingRequest) lister {
	return list(w.counterClient.ListTrending, func(size int32, token, at string) *skeinv1.ListTrendingRequest {
		return &skeinv1.ListTrendingRequest{Scope: scope.GetScope(), PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListTrendingResponse) (items []string, total int64) {
		for _, item := range r.GetItems() {
			items = append(items, item.GetItemId())
		}
		return items, -1
	})
}

func trendingOf(owner string) *skeinv1.ListTrendingRequest {
	return &skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: owner}}
}

func trendingOn(owner, id string) *skeinv1.ListTrendingRequest {
	return &skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_Board{Board: board(owner, id)}}
}

// walkTrending reads a whole list in pages, each perhaps from another process.
func walkTrending(t *testing.T, size int32, at string, pages ...lister) (got []string) {
	t.Helper()
	token := ""
	for n := 0; n == 0 || token != ""; n++ {
		p, err := pages[n%len(pages)](size, token, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.entries) == 0 && p.next != "" || len(p.entries) > int(size) || len(p.next) > pagetoken.MaxBytes {
			t.Errorf("page %d of %d has %d entries, then a token of %d bytes", n, size, len(p.entries), len(p.next))
		}
		got, token = append(got, p.entries...), p.next
	}
	return got
}

func TestListTrending(t *testing.T) {
	w := newWorld(t, withCounters)
	other := w.replica(withCounters)
	at := w.publish(
		pinned("bob", "cats", "b1"), pinned("bob", "dogs", "b2"), pinned("bob", "", "b3"), pinned("bob", "cats", "b4"),
		showing("cid", "c1", "b2"), unpinned("bob", "b4"),
		played("ann", "b2"), played("ann", "b2"), played("ann", "b2"), played("ann", "b1"), played("ann", "b1"),
		played("ann", "b4"), liked("ann", "b3"), liked("bob", "b3"), liked("ann", "alone"),
	)
	for name, c := range map[string]struct {
		of   *skeinv1.ListTrendingRequest
		want []string
	}{
		"of all":           {&skeinv1.ListTrendingRequest{}, []string{"b3", "alone", "b2", "b1", "b4"}},
		"of an author":     {trendingOf("bob"), []string{"b3", "b2", "b1"}},
		"of another":       {trendingOf("cid"), []string{"b2"}},
		"on a board":       {trendingOn("bob", "cats"), []string{"b1"}},
		"on the default":   {trendingOn("bob", ""), []string{"b3"}},
		"of nobody":        {trendingOf("nobody"), nil},
		"on no board":      {trendingOn("bob", "none"), nil},
		"on another's one": {trendingOn("cid", "cats"), nil},
	} {
		for size := range int32(6) {
			if diff := cmp.Diff(c.want, walkTrending(t, 1+size, at, w.trending(c.of), other.trending(c.of))); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, 1+size, diff)
			}
		}
	}
	res := ask(w, w.counterClient.ListTrending, &skeinv1.ListTrendingRequest{AtLeast: at})
	for i, item := range res.GetItems() {
		if i > 0 && item.GetScore() > res.GetItems()[i-1].GetScore() || item.GetScore() == 0 {
			t.Error(res)
		}
	}
	if res.GetPosition() != at || w.count("skein_trending_page_rows_read") == 0 {
		t.Error("the rows of pages are not counted, at ", res.GetPosition())
	}
}

func TestTrendingPageSizes(t *testing.T) {
	w := newWorld(t, withCounters)
	at := ""
	for i := range 2 {
		var evs []*skeinv1.Event
		for j := range 600 {
			evs = append(evs, played("ann", fmt.Sprint(600*i+j)))
		}
		at = w.publish(evs...)
	}
	for size, want := range map[int32]int{0: 50, 1: 1, 1000: 1000, 1001: 1000, 1<<31 - 1: 1000} {
		p, err := w.trending(&skeinv1.ListTrendingRequest{})(size, "", at)
		if err != nil || len(p.entries) != want || p.next == "" || p.position != at {
			t.Errorf("page_size %d: %d items, %v", size, len(p.entries), err)
		}
	}
}

// I9 by heat: a session reads the scores of its beginning and the pins of now.
func TestListTrendingWhileScoresChange(t *testing.T) {
	w := newWorld(t, withCounters)
	var evs []*skeinv1.Event
	for i := range 40 {
		evs = append(evs, pinned("bob", "", fmt.Sprintf("p%02d", i)))
		for range 1 + i%7 {
			evs = append(evs, played("zoe", fmt.Sprintf("p%02d", i)))
		}
	}
	at := w.publish(evs...)
	for name, scope := range map[string]*skeinv1.ListTrendingRequest{"all": {}, "author": trendingOf("bob"), "board": trendingOn("bob", "")} {
		var got []string
		gone := map[string]bool{}
		token := ""
		for page := 0; page == 0 || token != ""; page++ {
			p, err := w.trending(scope)(7, token, at)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range p.entries {
				if gone[item] || slices.Contains(got, item) {
					t.Errorf("%s: %s on page %d", name, item, page)
				}
				got = append(got, item)
			}
			token = p.next
			ahead := fmt.Sprintf("p%02d", 10*len(name)%30+page)
			at = w.publish(
				unpinned("bob", ahead), played("zoe", fmt.Sprintf("p%02d", 39-page)), played("zoe", fmt.Sprintf("new%d", page)),
			)
			gone[ahead] = name != "all"
		}
		for i := range 40 {
			item := fmt.Sprintf("p%02d", i)
			if !gone[item] && name == "all" && !slices.Contains(got, item) {
				t.Errorf("%s: %s is missing", name, item)
			}
		}
		for i := range gone {
			at = w.publish(pinned("bob", "", i))
		}
	}
}

func TestCountersBadInput(t *testing.T) {
	w := newWorld(t, withCounters)
	at := w.publish(played("ann", "1"), played("ann", "2"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	many := make([]*skeinv1.CounterKey, 1001)
	for i := range many {
		many[i] = countsOfItem("1")
	}
	for name, c := range map[string]struct {
		keys   []*skeinv1.CounterKey
		field  string
		reason string
	}{
		"none":             {nil, "keys", "INVALID_FIELD"},
		"too many":         {many, "keys", "INVALID_FIELD"},
		"an empty key":     {[]*skeinv1.CounterKey{countsOfItem("1"), {}}, "keys[1].target", "INVALID_FIELD"},
		"an empty user":    {[]*skeinv1.CounterKey{countsOfUser("")}, "keys[0].user_id", "INVALID_FIELD"},
		"a space":          {[]*skeinv1.CounterKey{countsOfItem("1"), countsOfItem("a b")}, "keys[1].item_id", "INVALID_FIELD"},
		"a board's owner":  {[]*skeinv1.CounterKey{countsOfBoard("", "b")}, "keys[0].board.owner_id", "INVALID_FIELD"},
		"a board too long": {[]*skeinv1.CounterKey{countsOfBoard("a", strings.Repeat("x", 129))}, "keys[0].board.board_id", "INVALID_FIELD"},
	} {
		t.Log(name)
		_, err := w.counterClient.BatchGetCounters(t.Context(), connect.NewRequest(&skeinv1.BatchGetCountersRequest{Keys: c.keys}))
		wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
	}
	_, err := w.counterClient.BatchGetCounters(t.Context(), connect.NewRequest(&skeinv1.BatchGetCountersRequest{
		Keys: many[:1], AtLeast: w.log.Position(99).String(),
	}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")

	all, err := w.trending(&skeinv1.ListTrendingRequest{})(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	ofBob, err := w.trending(trendingOf("bob"))(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	foreign := w.server.views.Keys.Sign(pagetoken.Token{List: pagetoken.NewListID(counterservice.TrendingList), Position: w.log.Position(1), Cursor: []byte("no cursor")})
	for name, c := range map[string]struct {
		of            *skeinv1.ListTrendingRequest
		size          int32
		token, at     string
		field, reason string
	}{
		"negative page":      {&skeinv1.ListTrendingRequest{}, -1, "", "", "page_size", "INVALID_FIELD"},
		"an empty owner":     {trendingOf(""), 1, "", "", "owner_id", "INVALID_FIELD"},
		"an owner's space":   {trendingOf("a b"), 1, "", "", "owner_id", "INVALID_FIELD"},
		"a board's owner":    {trendingOn("", "x"), 1, "", "", "board.owner_id", "INVALID_FIELD"},
		"a long token":       {&skeinv1.ListTrendingRequest{}, 1, strings.Repeat("x", 1025), "", "page_token", "INVALID_FIELD"},
		"tampered":           {&skeinv1.ListTrendingRequest{}, 1, all.next[:20] + other(all.next[20]) + all.next[21:], "", "page_token", "INVALID_PAGE_TOKEN"},
		"of another list":    {trendingOf("bob"), 1, all.next, "", "page_token", "INVALID_PAGE_TOKEN"},
		"of another author":  {trendingOf("ann"), 1, ofBob.next, "", "page_token", "INVALID_PAGE_TOKEN"},
		"of an author":       {trendingOn("bob", ""), 1, ofBob.next, "", "page_token", "INVALID_PAGE_TOKEN"},
		"a malformed cursor": {&skeinv1.ListTrendingRequest{}, 1, foreign, "", "page_token", "INVALID_PAGE_TOKEN"},
		"beyond the log":     {&skeinv1.ListTrendingRequest{}, 1, "", w.log.Position(99).String(), "at_least", "INVALID_POSITION"},
	} {
		t.Log(name)
		_, err := w.trending(c.of)(c.size, c.token, c.at)
		wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
	}
}

// The check by hand refuses exactly what the rules of the proto and the rules of ids refuse.
func TestHandCheckOfCounters(t *testing.T) {
	r, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	id := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	key := rapid.Custom(func(t *rapid.T) *skeinv1.CounterKey {
		switch rapid.IntRange(0, 3).Draw(t, "target") {
		case 0:
			return &skeinv1.CounterKey{}
		case 1:
			return countsOfBoard(id.Draw(t, "owner"), id.Draw(t, "board"))
		case 2:
			return countsOfUser(id.Draw(t, "user"))
		}
		return countsOfItem(id.Draw(t, "item"))
	})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.BatchGetCountersRequest{
			Keys:    rapid.SliceOfN(key, 0, 4).Draw(t, "keys"),
			AtLeast: rapid.SampledFrom([]string{"", strings.Repeat("p", 256), strings.Repeat("p", 257)}).Draw(t, "at"),
		}
		bad := len(r.Check(req)) > 0
		for _, k := range req.GetKeys() {
			for _, id := range []string{k.GetUserId(), k.GetItemId(), k.GetBoard().GetOwnerId(), k.GetBoard().GetBoardId()} {
				bad = bad || id != "" && events.ValidateID(id) != nil
			}
		}
		if got := counterservice.ValidateBatchGetCounters(req); (len(got) > 0) != bad {
			t.Fatalf("by hand %v, by the rules %v: %v", got, bad, req)
		}
	})
}

// A page token by heat lives at least an hour of log time, and then says that it is over.
func TestHeatTokensExpire(t *testing.T) {
	w := newWorld(t, withCounters, asleep)
	w.publish(played("ann", "1"), played("ann", "2"))
	w.publish(played("ann", "3"))
	w.publish(played("ann", "4"))
	envelopes := w.envelopes(3)
	for i, delay := range []events.Micros{0, counters.SessionLifetime - 60e6, counters.SessionLifetime + 60e6} {
		for j := range envelopes[i].Events {
			envelopes[i].Events[j].Time += delay
		}
		envelopes[i].Cursor.LastTime += delay
	}
	if err := w.counters.Serving().Fold(envelopes[:1]); err != nil {
		t.Fatal(err)
	}
	first, err := w.trending(&skeinv1.ListTrendingRequest{})(1, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.counters.Serving().Fold(envelopes[1:2]); err != nil {
		t.Fatal(err)
	}
	if p, err := w.trending(&skeinv1.ListTrendingRequest{})(10, first.next, ""); err != nil || len(p.entries) != 1 {
		t.Error("within the hour: ", p, err)
	}
	if err := w.counters.Serving().Fold(envelopes[2:]); err != nil {
		t.Fatal(err)
	}
	_, err = w.trending(&skeinv1.ListTrendingRequest{})(1, first.next, "")
	wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
}

// A token demands the position of its page, and at_least that of a write.
func TestCountersAtLeast(t *testing.T) {
	w := newWorld(t, withCounters)
	at := w.publish(played("ann", "1"), played("ann", "2"))
	first, err := w.trending(&skeinv1.ListTrendingRequest{})(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	behind := w.replica(withCounters, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	_, err = behind.trending(&skeinv1.ListTrendingRequest{})(1, first.next, "")
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	_, err = behind.counterClient.BatchGetCounters(t.Context(), connect.NewRequest(&skeinv1.BatchGetCountersRequest{
		Keys: []*skeinv1.CounterKey{countsOfItem("1")}, AtLeast: at,
	}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	behind.fold()
	<-behind.countersReady
	if p, err := behind.trending(&skeinv1.ListTrendingRequest{})(10, first.next, ""); err != nil || len(p.entries) != 1 {
		t.Error(p, err)
	}
}

// The health of CounterService is that of its store.
func TestHealthOfCounters(t *testing.T) {
	w := newWorld(t, withCounters)
	w.wantHealth("with its store", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.CounterServiceName: serving})
	w.unfold()
	w.wantHealth("without", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.CounterServiceName: notServing})
}
