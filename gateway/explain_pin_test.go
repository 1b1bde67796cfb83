package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	notLiving     = skeinv1.AbsenceReason_ABSENCE_REASON_NOT_LIVING
	ownPin        = skeinv1.AbsenceReason_ABSENCE_REASON_OWN_PIN
	notFollowed   = skeinv1.AbsenceReason_ABSENCE_REASON_NOT_FOLLOWED
	boardExcluded = skeinv1.AbsenceReason_ABSENCE_REASON_BOARD_EXCLUDED
	ownerMuted    = skeinv1.AbsenceReason_ABSENCE_REASON_OWNER_MUTED
	blockStands   = skeinv1.AbsenceReason_ABSENCE_REASON_BLOCKED
	itemPlayed    = skeinv1.AbsenceReason_ABSENCE_REASON_PLAYED
	itemServed    = skeinv1.AbsenceReason_ABSENCE_REASON_SERVED
	notRanked     = skeinv1.AbsenceReason_ABSENCE_REASON_NOT_RANKED
	itemShown     = skeinv1.AbsenceReason_ABSENCE_REASON_ITEM_SHOWN
	repinsHidden  = skeinv1.AbsenceReason_ABSENCE_REASON_REPINS_HIDDEN
	repinOfMuted  = skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_MUTED
	repinOfBlock  = skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_BLOCKED
	repinOfGone   = skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_DELETED
	repinOfAny    = skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_UNAVAILABLE
)

// explain asks why a pin is in the feed that a call of ReadFeed reads, or not.
func (w *world) explain(feed *skeinv1.ReadFeedRequest, owner, pin string) *skeinv1.ExplainPinResponse {
	w.t.Helper()
	return ask(w, w.feed.ExplainPin, &skeinv1.ExplainPinRequest{
		ReaderId: feed.GetReaderId(), Pin: pinNamed(owner, pin), Order: feed.GetOrder(), IncludeOwn: feed.GetIncludeOwn(),
		HideSeen: feed.GetHideSeen(), OnePerItem: feed.GetOnePerItem(), IgnoreServed: feed.GetIgnoreServed(), AtLeast: feed.GetAtLeast(),
	})
}

func TestExplainPin(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.inbox.Keep = 3 })
	at := w.publish(
		follow("ann", "bob"), unfollowBoard("ann", "bob", "trips"), follow("ann", "dan"), mute("ann", "dan"), follow("ann", "eve"),
		block("eve", "ann"), mute("ann", "eve"), follow("ann", "gil"), hideRepins("ann", "gil"), hideRepins("ann", "dan"),
		repinned("gil", "r", "z", "bob", "x"), repinned("dan", "r", "z", "bob", "x"), createBoard("bob", "gone", ""),
		showing("bob", "first", "i"), pinned("bob", "gone", "on-gone"), pinned("bob", "", "ended"), unpinned("bob", "ended"),
		deletedBoard("bob", "gone"), pinned("bob", "trips", "t"), pinned("dan", "", "d"), pinned("eve", "", "e"), pinned("cid", "", "c"),
		pinned("ann", "", "a"), pinned("fay", "", "f"), deletedUser("fay"), pinned("bob", "", "x"), pinned("bob", "", "y"),
		showing("bob", "last", "i"), played("ann", "x"), played("ann", "z"), served("ann", "y", "x", "z"),
		follow("ann", "joe"), repinned("joe", "of-dan", "d", "dan", "d"), repinned("joe", "of-eve", "e", "eve", "e"),
		repinned("joe", "of-fay", "f", "fay", "f"), deletedUser("fay"), unfollow("ann", "joe"),
		played("zoe", "y"),
	)
	type reasons []skeinv1.AbsenceReason
	for _, c := range []struct {
		feed       *skeinv1.ReadFeedRequest
		owner, pin string
		want       reasons
		rank       uint32
	}{
		{&skeinv1.ReadFeedRequest{}, "bob", "last", nil, 1},
		{&skeinv1.ReadFeedRequest{}, "bob", "first", nil, 4},
		{&skeinv1.ReadFeedRequest{IncludeOwn: true}, "bob", "first", nil, 5},
		{&skeinv1.ReadFeedRequest{IncludeOwn: true}, "ann", "a", nil, 4},
		{&skeinv1.ReadFeedRequest{}, "ann", "a", reasons{ownPin}, 0},
		{&skeinv1.ReadFeedRequest{}, "bob", "none", reasons{notLiving}, 0},
		{&skeinv1.ReadFeedRequest{}, "bob", "ended", reasons{notLiving}, 0},
		{&skeinv1.ReadFeedRequest{}, "bob", "on-gone", reasons{notLiving}, 0},
		{&skeinv1.ReadFeedRequest{}, "fay", "f", reasons{notLiving, notFollowed}, 0},
		{&skeinv1.ReadFeedRequest{}, "cid", "c", reasons{notFollowed}, 0},
		{&skeinv1.ReadFeedRequest{}, "bob", "t", reasons{boardExcluded}, 0},
		{&skeinv1.ReadFeedRequest{}, "dan", "d", reasons{ownerMuted}, 0},
		{&skeinv1.ReadFeedRequest{}, "eve", "e", reasons{notFollowed, ownerMuted, blockStands}, 0},
		{&skeinv1.ReadFeedRequest{}, "gil", "r", reasons{repinsHidden}, 0},
		{&skeinv1.ReadFeedRequest{}, "joe", "of-dan", reasons{notFollowed, repinOfMuted}, 0},
		{&skeinv1.ReadFeedRequest{}, "joe", "of-eve", reasons{notFollowed, repinOfMuted, repinOfBlock}, 0},
		{&skeinv1.ReadFeedRequest{}, "joe", "of-fay", reasons{notFollowed, repinOfGone}, 0},
		{&skeinv1.ReadFeedRequest{HideSeen: true}, "gil", "r", reasons{itemPlayed, itemServed, repinsHidden}, 0},
		{&skeinv1.ReadFeedRequest{}, "dan", "r", reasons{ownerMuted, repinsHidden}, 0},
		{&skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "x", reasons{itemPlayed, itemServed}, 0},
		{&skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "y", reasons{itemServed}, 0},
		{&skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "first", nil, 2},
		{&skeinv1.ReadFeedRequest{HideSeen: true, IgnoreServed: true}, "bob", "x", reasons{itemPlayed}, 0},
		{&skeinv1.ReadFeedRequest{HideSeen: true, IgnoreServed: true}, "bob", "y", nil, 2},
		{&skeinv1.ReadFeedRequest{OnePerItem: true}, "bob", "first", reasons{itemShown}, 0},
		{&skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "y", nil, 1},
		{&skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "x", nil, 2},
		{&skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "first", reasons{notRanked}, 0},
		{&skeinv1.ReadFeedRequest{Order: byHeat, OnePerItem: true}, "bob", "first", reasons{notRanked, itemShown}, 0},
	} {
		c.feed.ReaderId, c.feed.AtLeast = "ann", at
		res := w.explain(c.feed, c.owner, c.pin)
		if diff := cmp.Diff([]skeinv1.AbsenceReason(c.want), res.GetReasons()); diff != "" || res.GetRank() != c.rank ||
			res.GetInFeed() != (c.want == nil) || res.GetCompleteness() != complete || res.GetPosition() != at {
			t.Errorf("%s/%s of %v: %v: %s", c.owner, c.pin, c.feed, res, diff)
		}
		var delivery skeinv1.PinDelivery
		switch {
		case res.GetInFeed() && c.owner == "ann":
			delivery = skeinv1.PinDelivery_PIN_DELIVERY_PULLED
		case res.GetInFeed():
			delivery = skeinv1.PinDelivery_PIN_DELIVERY_PUSHED
		}
		if res.GetDelivery() != delivery {
			t.Errorf("%s/%s of %v is delivered %v, not %v", c.owner, c.pin, c.feed, res.GetDelivery(), delivery)
		}
		state := w.pinStates(at, pinNamed(c.owner, c.pin))[0]
		if diff := cmp.Diff(state.String(), res.GetPin().String()); diff != "" {
			t.Error(diff)
		}
	}
	feed := &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: w.publish(follow("ann", "cid"), pinned("cid", "", "c2"))}
	if res := w.explain(feed, "cid", "c"); res.GetDelivery() != skeinv1.PinDelivery_PIN_DELIVERY_PUSHED || res.GetRank() == 0 {
		t.Error(res)
	}
}

// TestExplainPinIsReadFeed: whatever happens between a reader and some owners, and whatever the
// options are, a pin is in the feed that ReadFeed returns exactly if no reason is given, as the
// entry of that rank (I8).
func TestExplainPinIsReadFeed(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.inbox.Keep = 4 })
	readers := 0
	rapid.Check(t, func(t *rapid.T) {
		readers++
		a := &audience{w: w, reader: fmt.Sprintf("reader-%d", readers), played: map[string]bool{}}
		owners := []string{"bob-of-" + a.reader, "cid-of-" + a.reader, a.reader}
		var pins []*skeinv1.Pin
		var items []string
		owner, id := rapid.SampledFrom(owners), rapid.SampledFrom([]string{"", "cats"})
		for i := range rapid.IntRange(3, 25).Draw(t, "events") {
			of := owner.Draw(t, "owner")
			other := of
			if other == a.reader {
				other = owners[0]
			}
			switch rapid.IntRange(-1, 12).Draw(t, "what") {
			case -1:
				a.publish(hideRepins(a.reader, other))
			case 0, 1:
				a.publish(follow(a.reader, other))
			case 2:
				a.publish(followBoard(a.reader, other, id.Draw(t, "board")))
			case 3:
				a.publish(unfollowBoard(a.reader, other, id.Draw(t, "board")))
			case 4:
				a.publish(mute(a.reader, other))
			case 5:
				a.publish(block(other, a.reader))
			case 6:
				if len(pins) > 0 {
					p := rapid.SampledFrom(pins).Draw(t, "pin")
					a.publish(unpinned(p.GetOwnerId(), p.GetPinId()))
				}
			case 7:
				a.publish(feedRead(a.reader, timestamppb.Now()))
			case 8:
				if len(items) > 0 {
					a.something(t, items)
				}
			default:
				item := fmt.Sprintf("%s-%d", a.reader, rapid.IntRange(0, 5).Draw(t, "item"))
				ev := showing(of, fmt.Sprint("p", i), item)
				ev.GetPinCreated().BoardId = id.Draw(t, "board")
				if rapid.IntRange(0, 2).Draw(t, "re-pin") == 2 {
					ev.GetPinCreated().RepinOf = pinNamed("zoe", "z")
				}
				a.publish(ev)
				pins, items = append(pins, ev.GetPinCreated().GetPin()), append(items, item)
			}
		}
		a.explained(t, append(pins, pinNamed(owners[0], "none")))
	})
}

// explained compares explanations with a feed that is read to its end.
func (a *audience) explained(t *rapid.T, pins []*skeinv1.Pin) {
	hides := rapid.Bool().Draw(t, "hide seen")
	req := &skeinv1.ReadFeedRequest{
		ReaderId: a.reader, HideSeen: hides, PageSize: 3, IncludeOwn: rapid.Bool().Draw(t, "own"), AtLeast: a.at,
		IgnoreServed: hides && rapid.Bool().Draw(t, "ignore served"), OnePerItem: rapid.Bool().Draw(t, "one per item"),
		Order: rapid.SampledFrom([]skeinv1.FeedOrder{newestFirst, byHeat}).Draw(t, "order"),
	}
	var feed []*skeinv1.FeedEntry
	for {
		res := a.w.readFeed(req)
		if feed = append(feed, res.GetEntries()...); res.GetNextPageToken() == "" {
			break
		}
		req.Start = after(res.GetNextPageToken())
	}
	for _, p := range pins {
		res := a.w.explain(req, p.GetOwnerId(), p.GetPinId())
		at := slices.IndexFunc(feed, func(e *skeinv1.FeedEntry) bool {
			return e.GetOwnerId() == p.GetOwnerId() && e.GetPinId() == p.GetPinId()
		})
		if int(res.GetRank()) != at+1 || res.GetInFeed() != (at >= 0) || res.GetInFeed() != (len(res.GetReasons()) == 0) ||
			at >= 0 && res.GetScore() != feed[at].GetScore() {
			t.Fatalf("%v in %v: %v, but entry %d of %v", p, req, res, at+1, pinNames(feed))
		}
		item := res.GetPin().GetItemId()
		served := hides && !req.GetIgnoreServed() && item != "" && slices.Contains(a.served, item) && a.seen(item, false)
		if slices.Contains(res.GetReasons(), itemPlayed) != (hides && a.played[item]) || served && !a.played[item] &&
			!slices.Contains(res.GetReasons(), itemServed) {
			t.Fatalf("%v in %v: %v; played %v, served %v", p, req, res, a.played[item], served)
		}
	}
}

func TestExplainPinBadInput(t *testing.T) {
	w := newWorld(t, withAllStores)
	w.publish(pinned("bob", "", "p"))
	good := pinNamed("bob", "p")
	for name, c := range map[string]struct {
		req           *skeinv1.ExplainPinRequest
		reason, field string
	}{
		"no reader": {&skeinv1.ExplainPinRequest{Pin: good}, "INVALID_FIELD", "reader_id"},
		"no pin":    {&skeinv1.ExplainPinRequest{ReaderId: "ann"}, "INVALID_FIELD", "pin"},
		"no pin id": {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("bob", "")}, "INVALID_FIELD", "pin.pin_id"},
		"a space":   {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("b b", "p")}, "INVALID_FIELD", "pin.owner_id"},
		"too long":  {&skeinv1.ExplainPinRequest{ReaderId: strings.Repeat("x", 129), Pin: good}, "INVALID_FIELD", "reader_id"},
		"no order":  {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: good, Order: 7}, "INVALID_FIELD", "order"},
		"no filter": {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: good, IgnoreServed: true}, "INVALID_FIELD", "ignore_served"},
		"position":  {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: good, AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.ExplainPin(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// A feed is its reader's own, and so is why something is not in it: mutes, blocks and plays.
func TestExplainPinOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, token := range []string{"reader", "ann"} {
		feed := &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}
		if res := g.as(g.tokens[token]).explain(feed, "bob", "p"); res.GetRank() != 1 {
			t.Errorf("%s: %v", token, res)
		}
	}
	req := &skeinv1.ExplainPinRequest{ReaderId: "bob", Pin: pinNamed("bob", "p")}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		_, err := g.as(g.tokens[token]).feed.ExplainPin(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}

// TestExplainPinBehind: an explanation is of a position that contains what is demanded. By heat it
// is that of the store that is behind, and what came after the scores is not ranked. Without the
// seen store it hides nothing, and says so.
func TestExplainPinBehind(t *testing.T) {
	w := newWorld(t, withAllStores, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	first := w.publish(follow("ann", "bob"), pinned("bob", "", "old"), played("ann", "old"))
	second := w.publish(pinned("bob", "", "new"))
	envelopes := w.envelopes(2)
	for _, fold := range []struct {
		store interface {
			Fold(envs []*events.Envelope) error
		}
		n int
	}{{w.store.Serving(), 2}, {w.inbox.Serving(), 2}, {w.counters.Serving(), 1}} {
		if err := fold.store.Fold(envelopes[:fold.n]); err != nil {
			t.Fatal(err)
		}
	}
	if res := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann"}, "bob", "new"); res.GetRank() != 1 || res.GetPosition() != second {
		t.Error(res)
	}
	res := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat}, "bob", "new")
	if !slices.Equal(res.GetReasons(), []skeinv1.AbsenceReason{notRanked}) || res.GetPosition() != first {
		t.Error(res)
	}
	if res := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true}, "bob", "old"); res.GetRank() != 2 ||
		res.GetCompleteness() != seenUnavailable {
		t.Error(res)
	}
	req := &skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("bob", "old"), Order: byHeat, AtLeast: second}
	_, err := w.feed.ExplainPin(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
}
