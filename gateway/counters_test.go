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

// liked is a reaction of the default kind.
func liked(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
}

// reacted is a reaction of a kind.
func reacted(user, item, kind string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item, Kind: kind}}}
}

// unreacted takes a reaction of a kind back.
func unreacted(user, item, kind string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item, Kind: kind}}}
}

// likesOf returns the number of likes in counters.
func likesOf(c *skeinv1.Counters) uint32 {
	for _, r := range c.GetReactions() {
		if r.GetKind() == "like" {
			return r.GetCount()
		}
	}
	return 0
}

// repinned is a pin that shows an item, and names the pin that it repeats.
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

// countersOf returns counters at the position, or at any position if it is empty.
func (w *world) countersOf(at string, keys ...*skeinv1.CounterKey) []*skeinv1.Counters {
	w.t.Helper()
	res := ask(w, w.counterClient.BatchGetCounters, &skeinv1.BatchGetCountersRequest{Keys: keys, AtLeast: at})
	if res.GetPosition() != at && at != "" {
		w.t.Errorf("got counters at the position %s, want %s", res.GetPosition(), at)
	}
	return res.GetCounters()
}

func TestBatchGetCountersCountsUsersItemsAndBoards(t *testing.T) {
	w := newWorld(t, withCounters)
	at := w.publish(
		createBoard("bob", "cats", "Cats"), createBoard("bob", "dogs", "Dogs"),
		follow("ann", "bob"), follow("cid", "bob"), followBoard("dan", "bob", "cats"), unfollowBoard("cid", "bob", "cats"),
		pinned("bob", "cats", "b1"), pinned("bob", "cats", "b2"), pinned("bob", "", "b3"), unpinned("bob", "b2"),
		repinned("ann", "r1", "b1", "bob", "b1"), repinned("cid", "r2", "b1", "ann", "r1"),
		played("ann", "b1"), played("ann", "b1"), played("cid", "b1"), played("ann", "unpinned"),
		liked("ann", "b1"), liked("ann", "b1"), liked("cid", "b1"),
	)
	cases := []struct {
		name string
		key  *skeinv1.CounterKey
		want *skeinv1.Counters
	}{
		{"author", countsOfUser("bob"), &skeinv1.Counters{PinCount: 2, BoardCount: 2, FollowerCount: 3}},
		{
			"item", countsOfItem("b1"),
			&skeinv1.Counters{PlayCount: 3, Reactions: []*skeinv1.ReactionCount{{Kind: "like", Count: 2}}, RepinCount: 2},
		},
		{"board", countsOfBoard("bob", "cats"), &skeinv1.Counters{PinCount: 1, FollowerCount: 2}},
		{"default board", countsOfBoard("bob", ""), &skeinv1.Counters{PinCount: 1, FollowerCount: 2}},
		{"user who plays", countsOfUser("ann"), &skeinv1.Counters{PinCount: 1, PlayCount: 3}},
		{"board in no event", countsOfBoard("bob", "none"), &skeinv1.Counters{}},
		{"item without a pin", countsOfItem("unpinned"), &skeinv1.Counters{PlayCount: 1}},
		{"user in no event", countsOfUser("nobody"), &skeinv1.Counters{}},
		{"item in no event", countsOfItem("nothing"), &skeinv1.Counters{}},
		{
			"same item again", countsOfItem("b1"),
			&skeinv1.Counters{PlayCount: 3, Reactions: []*skeinv1.ReactionCount{{Kind: "like", Count: 2}}, RepinCount: 2},
		},
	}
	var keys []*skeinv1.CounterKey
	for _, c := range cases {
		keys = append(keys, c.key)
	}
	got := w.countersOf(at, keys...)
	if len(got) != len(cases) {
		t.Fatalf("got %d counters, want %d", len(got), len(cases))
	}
	for i, c := range cases {
		if diff := cmp.Diff(c.want, got[i], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
	}

	// A later event changes the counts.
	at = w.publish(&skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "ann", ItemId: "b1"}}})
	if got := likesOf(w.countersOf(at, countsOfItem("b1"))[0]); got != 1 {
		t.Errorf("after the end of a reaction: got %d likes, want 1", got)
	}

	// A call may have 1000 keys.
	kinds := []struct {
		newKey    func(i int) *skeinv1.CounterKey
		wantPlays int64
		wantPins  uint32
	}{
		{func(int) *skeinv1.CounterKey { return countsOfItem("b1") }, 3, 0},
		{func(i int) *skeinv1.CounterKey { return countsOfUser(fmt.Sprint(i)) }, 0, 0},
		{func(int) *skeinv1.CounterKey { return countsOfBoard("bob", "cats") }, 0, 1},
	}
	var manyKeys []*skeinv1.CounterKey
	for i := range 1000 {
		manyKeys = append(manyKeys, kinds[i%len(kinds)].newKey(i))
	}
	many := w.countersOf(at, manyKeys...)
	if len(many) != len(manyKeys) {
		t.Fatalf("got %d counters, want %d", len(many), len(manyKeys))
	}
	for i, c := range many {
		kind := kinds[i%len(kinds)]
		if c.GetPlayCount() != kind.wantPlays || c.GetPinCount() != kind.wantPins {
			t.Errorf("key %d: got %v, want %d plays and %d pins", i, c, kind.wantPlays, kind.wantPins)
		}
	}
}

// TestCountersOfTwoStoresHaveTheEarlierPosition checks counters while one store is behind.
// Followers and boards are counted by the graph, and all else by the counters. The position of an
// answer is one that all stores contain that counted for it.
func TestCountersOfTwoStoresHaveTheEarlierPosition(t *testing.T) {
	for _, graphIsAhead := range []bool{false, true} {
		t.Run(fmt.Sprint("graph is ahead ", graphIsAhead), func(t *testing.T) {
			w := newWorld(t, withCounters, asleep)
			first := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), played("bob", "1"))
			second := w.publish(follow("cid", "bob"), createBoard("bob", "art", "Art"), pinned("bob", "art", "2"), played("bob", "1"))
			envelopes := w.envelopes(2)

			ahead, behind := w.counters.Serving(), w.store.Serving()
			want := &skeinv1.Counters{PinCount: 2, FollowerCount: 1, PlayCount: 2}
			if graphIsAhead {
				ahead, behind = behind, ahead
				want = &skeinv1.Counters{PinCount: 1, BoardCount: 1, FollowerCount: 2, PlayCount: 1}
			}
			if err := errors.Join(ahead.Fold(envelopes), behind.Fold(envelopes[:1])); err != nil {
				t.Fatal(err)
			}

			checkCounters := func(key *skeinv1.CounterKey, want *skeinv1.Counters, wantPosition string) {
				t.Helper()
				res := ask(w, w.counterClient.BatchGetCounters, &skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{key}})
				if diff := cmp.Diff(want, res.GetCounters()[0], protocmp.Transform()); diff != "" {
					t.Errorf("%v (-want +got)\n%s", key, diff)
				}
				if res.GetPosition() != wantPosition {
					t.Errorf("%v: got the position %s, want %s", key, res.GetPosition(), wantPosition)
				}
			}
			checkCounters(countsOfUser("bob"), want, first)
			if !graphIsAhead {
				// The graph counts nothing for items, so its position does not matter.
				checkCounters(countsOfItem("1"), &skeinv1.Counters{PlayCount: 2}, second)
			}

			if err := behind.Fold(envelopes[1:]); err != nil {
				t.Fatal(err)
			}
			checkCounters(countsOfUser("bob"), &skeinv1.Counters{PinCount: 2, BoardCount: 1, FollowerCount: 2, PlayCount: 2}, second)
		})
	}
}

// trending reads pages of the trending items of a scope. A list has no total number of items.
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

// trendingOf is the scope of the pins of an owner.
func trendingOf(owner string) *skeinv1.ListTrendingRequest {
	return &skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: owner}}
}

// trendingOn is the scope of the pins on a board.
func trendingOn(owner, id string) *skeinv1.ListTrendingRequest {
	return &skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_Board{Board: board(owner, id)}}
}

// mustReadTrendingPages reads a whole list in pages of at most size items. The listers, each of
// which may ask another process, read the pages in turn.
func mustReadTrendingPages(t *testing.T, size int32, at string, listers ...lister) (items []string) {
	t.Helper()
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		p, err := listers[page%len(listers)](size, token, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.entries) > int(size) {
			t.Errorf("page %d: got %d items, want at most %d", page, len(p.entries), size)
		}
		if len(p.entries) == 0 && p.next != "" {
			t.Errorf("page %d: got a token but no items", page)
		}
		if len(p.next) > pagetoken.MaxBytes {
			t.Errorf("page %d: got a token of %d bytes, want at most %d", page, len(p.next), pagetoken.MaxBytes)
		}
		items = append(items, p.entries...)
		token = p.next
	}
	return items
}

func TestListTrendingRanksItemsOfItsScope(t *testing.T) {
	w := newWorld(t, withCounters)
	other := w.replica(withCounters)
	at := w.publish(
		pinned("bob", "cats", "b1"), pinned("bob", "dogs", "b2"), pinned("bob", "", "b3"), pinned("bob", "cats", "b4"),
		showing("cid", "c1", "b2"), unpinned("bob", "b4"),
		played("ann", "b2"), played("ann", "b2"), played("ann", "b2"), played("ann", "b1"), played("ann", "b1"),
		played("ann", "b4"), liked("ann", "b3"), liked("bob", "b3"), liked("ann", "alone"),
	)
	for name, c := range map[string]struct {
		scope *skeinv1.ListTrendingRequest
		want  []string
	}{
		"all":                     {&skeinv1.ListTrendingRequest{}, []string{"b3", "alone", "b2", "b1", "b4"}},
		"an author":               {trendingOf("bob"), []string{"b3", "b2", "b1"}},
		"another author":          {trendingOf("cid"), []string{"b2"}},
		"a board":                 {trendingOn("bob", "cats"), []string{"b1"}},
		"the default board":       {trendingOn("bob", ""), []string{"b3"}},
		"a user in no event":      {trendingOf("nobody"), nil},
		"a board in no event":     {trendingOn("bob", "none"), nil},
		"a board of another user": {trendingOn("cid", "cats"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 6; size++ {
				got := mustReadTrendingPages(t, size, at, w.trending(c.scope), other.trending(c.scope))
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("pages of %d (-want +got)\n%s", size, diff)
				}
			}
		})
	}

	res := ask(w, w.counterClient.ListTrending, &skeinv1.ListTrendingRequest{AtLeast: at})
	if res.GetPosition() != at {
		t.Errorf("got the position %s, want %s", res.GetPosition(), at)
	}
	for i, item := range res.GetItems() {
		if item.GetScore() == 0 {
			t.Errorf("item %d: got the score 0, want more: %v", i, res)
		}
		if i > 0 && item.GetScore() > res.GetItems()[i-1].GetScore() {
			t.Errorf("item %d: got a higher score than that of the item before: %v", i, res)
		}
	}
	if w.count("skein_trending_page_rows_read") == 0 {
		t.Error("skein_trending_page_rows_read: got 0, want the rows of these pages")
	}
}

func TestListTrendingLimitsPageSizes(t *testing.T) {
	w := newWorld(t, withCounters)
	at := ""
	for batch := range 2 {
		var evs []*skeinv1.Event
		for i := range 600 {
			evs = append(evs, played("ann", fmt.Sprint(600*batch+i)))
		}
		at = w.publish(evs...)
	}
	for size, want := range map[int32]int{0: 50, 1: 1, 1000: 1000, 1001: 1000, 1<<31 - 1: 1000} {
		t.Run(fmt.Sprint("page_size ", size), func(t *testing.T) {
			p, err := w.trending(&skeinv1.ListTrendingRequest{})(size, "", at)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.entries) != want {
				t.Errorf("got %d items, want %d", len(p.entries), want)
			}
			if p.next == "" {
				t.Error("got no token, want one: there are 1200 items")
			}
			if p.position != at {
				t.Errorf("got the position %s, want %s", p.position, at)
			}
		})
	}
}

// TestListTrendingWhileScoresChange checks that all pages of a session use the scores of its
// beginning and the pins of the time of the page (I9). Before each page, a pin ends, and two items
// are played that would change the order.
func TestListTrendingWhileScoresChange(t *testing.T) {
	w := newWorld(t, withCounters)
	itemOf := func(i int) string { return fmt.Sprintf("p%02d", i) }
	var evs []*skeinv1.Event
	for i := range 40 {
		evs = append(evs, pinned("bob", "", itemOf(i)))
		for range 1 + i%7 {
			evs = append(evs, played("zoe", itemOf(i)))
		}
	}
	at := w.publish(evs...)

	for _, c := range []struct {
		name  string
		scope *skeinv1.ListTrendingRequest
		// firstUnpinned is the number of the first item whose pin ends. Pins end one after the
		// other.
		firstUnpinned int
		// needsPins says that the list has only items with a pin.
		needsPins bool
	}{
		{"all", &skeinv1.ListTrendingRequest{}, 0, false},
		{"author", trendingOf("bob"), 0, true},
		{"board", trendingOn("bob", ""), 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			unpinnedItems := map[string]bool{}
			token := ""
			for page := 0; page == 0 || token != ""; page++ {
				p, err := w.trending(c.scope)(7, token, at)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range p.entries {
					if c.needsPins && unpinnedItems[item] {
						t.Errorf("page %d: got %s, whose pin has ended", page, item)
					}
					if slices.Contains(got, item) {
						t.Errorf("page %d: got %s again", page, item)
					}
					got = append(got, item)
				}
				token = p.next

				next := itemOf(c.firstUnpinned + page)
				at = w.publish(unpinned("bob", next), played("zoe", itemOf(39-page)), played("zoe", fmt.Sprint("new", page)))
				unpinnedItems[next] = true
			}

			for i := range 40 {
				item := itemOf(i)
				mayBeMissing := c.needsPins && unpinnedItems[item]
				if !mayBeMissing && !slices.Contains(got, item) {
					t.Errorf("got no %s on any page", item)
				}
			}

			// Restore the pins for the next list.
			for item := range unpinnedItems {
				at = w.publish(pinned("bob", "", item))
			}
		})
	}
}

func TestCountersRefuseBadInput(t *testing.T) {
	w := newWorld(t, withCounters)
	at := w.publish(played("ann", "1"), played("ann", "2"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	beyondLog := w.log.Position(99).String()
	tooManyKeys := slices.Repeat([]*skeinv1.CounterKey{countsOfItem("1")}, 1001)
	for name, c := range map[string]struct {
		keys          []*skeinv1.CounterKey
		at            string
		field, reason string
	}{
		"no keys":                   {nil, "", "keys", "INVALID_FIELD"},
		"too many keys":             {tooManyKeys, "", "keys", "INVALID_FIELD"},
		"empty key":                 {[]*skeinv1.CounterKey{countsOfItem("1"), {}}, "", "keys[1].target", "INVALID_FIELD"},
		"empty user":                {[]*skeinv1.CounterKey{countsOfUser("")}, "", "keys[0].user_id", "INVALID_FIELD"},
		"item with a space":         {[]*skeinv1.CounterKey{countsOfItem("1"), countsOfItem("a b")}, "", "keys[1].item_id", "INVALID_FIELD"},
		"board without an owner":    {[]*skeinv1.CounterKey{countsOfBoard("", "b")}, "", "keys[0].board.owner_id", "INVALID_FIELD"},
		"board id that is too long": {[]*skeinv1.CounterKey{countsOfBoard("a", strings.Repeat("x", 129))}, "", "keys[0].board.board_id", "INVALID_FIELD"},
		"position beyond the log":   {tooManyKeys[:1], beyondLog, "at_least", "INVALID_POSITION"},
	} {
		t.Run("BatchGetCounters, "+name, func(t *testing.T) {
			_, err := w.counterClient.BatchGetCounters(t.Context(), connect.NewRequest(&skeinv1.BatchGetCountersRequest{Keys: c.keys, AtLeast: c.at}))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	all := &skeinv1.ListTrendingRequest{}
	pageOfAll, err := w.trending(all)(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	pageOfBob, err := w.trending(trendingOf("bob"))(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	tokenOfAll := pageOfAll.next
	tamperedToken := tokenOfAll[:20] + other(tokenOfAll[20]) + tokenOfAll[21:]
	// Only the server can sign a token, so this one is as from a server with a defect.
	tokenWithMalformedCursor := w.server.views.Keys.Sign(pagetoken.Token{
		List: pagetoken.NewListID(counterservice.TrendingList), Position: w.log.Position(1), Cursor: []byte("no cursor"),
	})
	for name, c := range map[string]struct {
		scope         *skeinv1.ListTrendingRequest
		size          int32
		token, at     string
		field, reason string
	}{
		"negative page size":      {all, -1, "", "", "page_size", "INVALID_FIELD"},
		"empty owner":             {trendingOf(""), 1, "", "", "owner_id", "INVALID_FIELD"},
		"owner with a space":      {trendingOf("a b"), 1, "", "", "owner_id", "INVALID_FIELD"},
		"board without an owner":  {trendingOn("", "x"), 1, "", "", "board.owner_id", "INVALID_FIELD"},
		"token that is too long":  {all, 1, strings.Repeat("x", 1025), "", "page_token", "INVALID_FIELD"},
		"tampered token":          {all, 1, tamperedToken, "", "page_token", "INVALID_PAGE_TOKEN"},
		"token of all":            {trendingOf("bob"), 1, tokenOfAll, "", "page_token", "INVALID_PAGE_TOKEN"},
		"token of another author": {trendingOf("ann"), 1, pageOfBob.next, "", "page_token", "INVALID_PAGE_TOKEN"},
		"token of the author":     {trendingOn("bob", ""), 1, pageOfBob.next, "", "page_token", "INVALID_PAGE_TOKEN"},
		"malformed cursor":        {all, 1, tokenWithMalformedCursor, "", "page_token", "INVALID_PAGE_TOKEN"},
		"position beyond the log": {all, 1, "", beyondLog, "at_least", "INVALID_POSITION"},
	} {
		t.Run("ListTrending, "+name, func(t *testing.T) {
			_, err := w.trending(c.scope)(c.size, c.token, c.at)
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestHandCheckOfCountersAgreesWithTheRules checks that the hand-written check of BatchGetCounters
// refuses exactly what the rules of the proto and the rules of ids refuse.
func TestHandCheckOfCountersAgreesWithTheRules(t *testing.T) {
	rules, err := request.NewRules()
	if err != nil {
		t.Fatal(err)
	}
	ids := rapid.SampledFrom([]string{"a", "42", "", strings.Repeat("x", 128), strings.Repeat("x", 129), "a b", "é"})
	positions := rapid.SampledFrom([]string{"", strings.Repeat("p", 256), strings.Repeat("p", 257)})
	keys := rapid.Custom(func(t *rapid.T) *skeinv1.CounterKey {
		switch rapid.IntRange(0, 3).Draw(t, "target") {
		case 0:
			return &skeinv1.CounterKey{}
		case 1:
			return countsOfBoard(ids.Draw(t, "owner"), ids.Draw(t, "board"))
		case 2:
			return countsOfUser(ids.Draw(t, "user"))
		default:
			return countsOfItem(ids.Draw(t, "item"))
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		req := &skeinv1.BatchGetCountersRequest{Keys: rapid.SliceOfN(keys, 0, 4).Draw(t, "keys"), AtLeast: positions.Draw(t, "at")}
		wantRefusal := len(rules.Check(req)) > 0
		for _, k := range req.GetKeys() {
			if hasInvalidID(k.GetUserId(), k.GetItemId(), k.GetBoard().GetOwnerId(), k.GetBoard().GetBoardId()) {
				wantRefusal = true
			}
		}
		if got := counterservice.ValidateBatchGetCounters(req); (len(got) > 0) != wantRefusal {
			t.Fatalf("%v: got the violations %v, want some: %v", req, got, wantRefusal)
		}
	})
}

// TestHeatTokensExpire checks that a page token of a trending list is valid for at least an hour of
// log time, and that the error says so when it is not valid any more.
func TestHeatTokensExpire(t *testing.T) {
	w := newWorld(t, withCounters, asleep)
	w.publish(played("ann", "1"), played("ann", "2"))
	w.publish(played("ann", "3"))
	w.publish(played("ann", "4"))

	// Move the second event to just before the end of the hour, and the third to just after it.
	envelopes := w.envelopes(3)
	const minute = 60e6
	for i, delay := range []events.Micros{0, counters.SessionLifetime - minute, counters.SessionLifetime + minute} {
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
	rest, err := w.trending(&skeinv1.ListTrendingRequest{})(10, first.next, "")
	if err != nil || len(rest.entries) != 1 {
		t.Errorf("within the hour: got %v and the error %v, want one item", rest, err)
	}

	if err := w.counters.Serving().Fold(envelopes[2:]); err != nil {
		t.Fatal(err)
	}
	_, err = w.trending(&skeinv1.ListTrendingRequest{})(1, first.next, "")
	wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
}

// TestCountersAtLeast checks that a page token demands the position of its page, and at_least that
// of a write.
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
	rest, err := behind.trending(&skeinv1.ListTrendingRequest{})(10, first.next, "")
	if err != nil || len(rest.entries) != 1 {
		t.Errorf("after the replica has caught up: got %v and the error %v, want one item", rest, err)
	}
}

// TestCounterServiceIsHealthyWithItsStore checks that the health of CounterService is that of its
// store.
func TestCounterServiceIsHealthyWithItsStore(t *testing.T) {
	w := newWorld(t, withCounters)
	w.wantHealth("with its store", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.CounterServiceName: serving})
	w.unfold()
	w.wantHealth("without", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.CounterServiceName: notServing})
}
