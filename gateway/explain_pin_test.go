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
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

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

// explain asks whether a pin is in the feed that a call of ReadFeed reads, and why not.
func (w *world) explain(feed *skeinv1.ReadFeedRequest, owner, pin string) *skeinv1.ExplainPinResponse {
	w.t.Helper()
	return ask(w, w.feed.ExplainPin, &skeinv1.ExplainPinRequest{
		ReaderId: feed.GetReaderId(), Pin: pinNamed(owner, pin), Order: feed.GetOrder(), IncludeOwn: feed.GetIncludeOwn(),
		HideSeen: feed.GetHideSeen(), OnePerItem: feed.GetOnePerItem(), IgnoreServed: feed.GetIgnoreServed(), AtLeast: feed.GetAtLeast(),
	})
}

// TestExplainPinGivesReasonsAndRank asks about pins that are in the feed of ann, and about pins
// that are not for each reason and for several.
func TestExplainPinGivesReasonsAndRank(t *testing.T) {
	// Feeds by heat rank only the newest three pins.
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.inbox.Keep = 3 })
	at := w.publish(
		// Whom ann follows and mutes, and who blocks her.
		follow("ann", "bob"), unfollowBoard("ann", "bob", "trips"), follow("ann", "dan"), mute("ann", "dan"), follow("ann", "eve"),
		block("eve", "ann"), mute("ann", "eve"), follow("ann", "gil"), hideRepins("ann", "gil"), hideRepins("ann", "dan"),

		// Re-pins that ann hides.
		repinned("gil", "r", "z", "bob", "x"), repinned("dan", "r", "z", "bob", "x"),

		// Pins, and the ends of some.
		createBoard("bob", "gone", ""), showing("bob", "first", "i"), pinned("bob", "gone", "on-gone"), pinned("bob", "", "ended"),
		unpinned("bob", "ended"), deletedBoard("bob", "gone"), pinned("bob", "trips", "t"), pinned("dan", "", "d"), pinned("eve", "", "e"),
		pinned("cid", "", "c"), pinned("ann", "", "a"), pinned("fay", "", "f"), deletedUser("fay"), pinned("bob", "", "x"),
		pinned("bob", "", "y"), showing("bob", "last", "i"),

		// What ann has seen.
		played("ann", "x"), played("ann", "z"), served("ann", "y", "x", "z"),

		// Re-pins of joe, whom ann does not follow any more.
		follow("ann", "joe"), repinned("joe", "of-dan", "d", "dan", "d"), repinned("joe", "of-eve", "e", "eve", "e"),
		repinned("joe", "of-fay", "f", "fay", "f"), deletedUser("fay"), unfollow("ann", "joe"),

		// Heat for the item y.
		played("zoe", "y"),
	)

	type reasons []skeinv1.AbsenceReason
	for _, c := range []struct {
		name       string
		feed       *skeinv1.ReadFeedRequest
		owner, pin string
		// want are the reasons why the pin is not in the feed. If there is none, wantRank is its
		// rank.
		want     reasons
		wantRank uint32
	}{
		{"newest", &skeinv1.ReadFeedRequest{}, "bob", "last", nil, 1},
		{"oldest", &skeinv1.ReadFeedRequest{}, "bob", "first", nil, 4},
		{"oldest with own pins", &skeinv1.ReadFeedRequest{IncludeOwn: true}, "bob", "first", nil, 5},
		{"own pin with own pins", &skeinv1.ReadFeedRequest{IncludeOwn: true}, "ann", "a", nil, 4},
		{"own pin", &skeinv1.ReadFeedRequest{}, "ann", "a", reasons{ownPin}, 0},
		{"pin in no event", &skeinv1.ReadFeedRequest{}, "bob", "none", reasons{notLiving}, 0},
		{"deleted pin", &skeinv1.ReadFeedRequest{}, "bob", "ended", reasons{notLiving}, 0},
		{"pin on a deleted board", &skeinv1.ReadFeedRequest{}, "bob", "on-gone", reasons{notLiving}, 0},
		{"pin of a deleted user", &skeinv1.ReadFeedRequest{}, "fay", "f", reasons{notLiving, notFollowed}, 0},
		{"pin of a user whom ann does not follow", &skeinv1.ReadFeedRequest{}, "cid", "c", reasons{notFollowed}, 0},
		{"pin on an excluded board", &skeinv1.ReadFeedRequest{}, "bob", "t", reasons{boardExcluded}, 0},
		{"pin of a muted user", &skeinv1.ReadFeedRequest{}, "dan", "d", reasons{ownerMuted}, 0},
		{"pin of a user who blocks ann", &skeinv1.ReadFeedRequest{}, "eve", "e", reasons{notFollowed, ownerMuted, blockStands}, 0},
		{"hidden re-pin", &skeinv1.ReadFeedRequest{}, "gil", "r", reasons{repinsHidden}, 0},
		{"re-pin of a muted user", &skeinv1.ReadFeedRequest{}, "joe", "of-dan", reasons{notFollowed, repinOfMuted}, 0},
		{"re-pin of a user who blocks ann", &skeinv1.ReadFeedRequest{}, "joe", "of-eve", reasons{notFollowed, repinOfMuted, repinOfBlock}, 0},
		{"re-pin of a deleted user", &skeinv1.ReadFeedRequest{}, "joe", "of-fay", reasons{notFollowed, repinOfGone}, 0},
		{"hidden re-pin of a seen item", &skeinv1.ReadFeedRequest{HideSeen: true}, "gil", "r", reasons{itemPlayed, itemServed, repinsHidden}, 0},
		{"hidden re-pin by a muted user", &skeinv1.ReadFeedRequest{}, "dan", "r", reasons{ownerMuted, repinsHidden}, 0},
		{"played and served", &skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "x", reasons{itemPlayed, itemServed}, 0},
		{"served", &skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "y", reasons{itemServed}, 0},
		{"not seen", &skeinv1.ReadFeedRequest{HideSeen: true}, "bob", "first", nil, 2},
		{"played, if serves do not count", &skeinv1.ReadFeedRequest{HideSeen: true, IgnoreServed: true}, "bob", "x", reasons{itemPlayed}, 0},
		{"served, if serves do not count", &skeinv1.ReadFeedRequest{HideSeen: true, IgnoreServed: true}, "bob", "y", nil, 2},
		{"item with a newer pin", &skeinv1.ReadFeedRequest{OnePerItem: true}, "bob", "first", reasons{itemShown}, 0},
		{"hottest", &skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "y", nil, 1},
		{"second by heat", &skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "x", nil, 2},
		{"too old to be ranked", &skeinv1.ReadFeedRequest{Order: byHeat}, "bob", "first", reasons{notRanked}, 0},
		{"too old, with a newer pin", &skeinv1.ReadFeedRequest{Order: byHeat, OnePerItem: true}, "bob", "first", reasons{notRanked, itemShown}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.feed.ReaderId = "ann"
			c.feed.AtLeast = at
			got := w.explain(c.feed, c.owner, c.pin)
			if diff := cmp.Diff([]skeinv1.AbsenceReason(c.want), got.GetReasons()); diff != "" {
				t.Errorf("reasons (-want +got)\n%s", diff)
			}
			if wantInFeed := c.want == nil; got.GetInFeed() != wantInFeed || got.GetRank() != c.wantRank {
				t.Errorf("got in the feed %v with rank %d, want %v with rank %d", got.GetInFeed(), got.GetRank(), wantInFeed, c.wantRank)
			}
			if got.GetCompleteness() != complete || got.GetPosition() != at {
				t.Errorf("got %v at %s, want a complete answer at %s", got.GetCompleteness(), got.GetPosition(), at)
			}

			// The feed reads own pins from the owner's outbox. All others are in the inbox.
			wantDelivery := skeinv1.PinDelivery_PIN_DELIVERY_UNSPECIFIED
			if c.want == nil {
				wantDelivery = skeinv1.PinDelivery_PIN_DELIVERY_PUSHED
				if c.owner == "ann" {
					wantDelivery = skeinv1.PinDelivery_PIN_DELIVERY_PULLED
				}
			}
			if got.GetDelivery() != wantDelivery {
				t.Errorf("got the delivery %v, want %v", got.GetDelivery(), wantDelivery)
			}

			state := w.pinStates(at, pinNamed(c.owner, c.pin))[0]
			if diff := cmp.Diff(state, got.GetPin(), protocmp.Transform()); diff != "" {
				t.Errorf("state of the pin (-BatchGetPins +ExplainPin)\n%s", diff)
			}
		})
	}

	// A new follow delivers the pins that the user already has.
	feed := &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: w.publish(follow("ann", "cid"), pinned("cid", "", "c2"))}
	got := w.explain(feed, "cid", "c")
	if got.GetDelivery() != skeinv1.PinDelivery_PIN_DELIVERY_PUSHED || got.GetRank() == 0 {
		t.Errorf("earlier pin of a user whom ann now follows: got %v, want it pushed and with a rank", got)
	}
}

// TestExplainPinAgreesWithReadFeed checks that, whatever happens between a reader and some owners,
// and whatever the options are, a pin is in the feed that ReadFeed returns, as the entry of its
// rank, exactly if the explanation gives no reason (I8).
func TestExplainPinAgreesWithReadFeed(t *testing.T) {
	w := newWorld(t, withAllStores, func(o *worldOptions) { o.inbox.Keep = 4 })
	readers := 0
	rapid.Check(t, func(t *rapid.T) {
		// All histories share the service, so each has users of its own.
		readers++
		a := &audience{w: w, reader: fmt.Sprintf("reader-%d", readers), played: map[string]bool{}}
		owners := []string{"bob-of-" + a.reader, "cid-of-" + a.reader, a.reader}
		boards := rapid.SampledFrom([]string{"", "cats"})

		var pins []*skeinv1.Pin
		var items []string
		for i := range rapid.IntRange(3, 25).Draw(t, "events") {
			owner := rapid.SampledFrom(owners).Draw(t, "owner")
			// Nobody follows, mutes or blocks themselves.
			other := owner
			if other == a.reader {
				other = owners[0]
			}

			// Most events are pins, so that there is much to ask about.
			switch rapid.IntRange(-1, 12).Draw(t, "what") {
			case -1:
				a.publish(hideRepins(a.reader, other))
			case 0, 1:
				a.publish(follow(a.reader, other))
			case 2:
				a.publish(followBoard(a.reader, other, boards.Draw(t, "board")))
			case 3:
				a.publish(unfollowBoard(a.reader, other, boards.Draw(t, "board")))
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
				ev := showing(owner, fmt.Sprint("p", i), item)
				ev.GetPinCreated().BoardId = boards.Draw(t, "board")
				if rapid.IntRange(0, 2).Draw(t, "re-pin") == 2 {
					ev.GetPinCreated().RepinOf = pinNamed("zoe", "z")
				}
				a.publish(ev)
				pins = append(pins, ev.GetPinCreated().GetPin())
				items = append(items, item)
			}
		}

		pinInNoEvent := pinNamed(owners[0], "none")
		a.checkExplanations(t, append(pins, pinInNoEvent))
	})
}

// checkExplanations compares the explanations of pins with the whole feed of the reader, with any
// options.
func (a *audience) checkExplanations(t *rapid.T, pins []*skeinv1.Pin) {
	hidesSeen := rapid.Bool().Draw(t, "hide seen")
	req := &skeinv1.ReadFeedRequest{
		ReaderId: a.reader, HideSeen: hidesSeen, PageSize: 3, IncludeOwn: rapid.Bool().Draw(t, "own"), AtLeast: a.at,
		IgnoreServed: hidesSeen && rapid.Bool().Draw(t, "ignore served"), OnePerItem: rapid.Bool().Draw(t, "one per item"),
		Order: rapid.SampledFrom([]skeinv1.FeedOrder{newestFirst, byHeat}).Draw(t, "order"),
	}
	var feed []*skeinv1.FeedEntry
	for {
		res := a.w.readFeed(req)
		feed = append(feed, res.GetEntries()...)
		if res.GetNextPageToken() == "" {
			break
		}
		req.Start = after(res.GetNextPageToken())
	}

	for _, p := range pins {
		got := a.w.explain(req, p.GetOwnerId(), p.GetPinId())

		// The pin is in the feed exactly if there is no reason, and then as the entry of its rank.
		index := slices.IndexFunc(feed, func(e *skeinv1.FeedEntry) bool {
			return e.GetOwnerId() == p.GetOwnerId() && e.GetPinId() == p.GetPinId()
		})
		isInFeed := index >= 0
		if int(got.GetRank()) != index+1 || got.GetInFeed() != isInFeed || (len(got.GetReasons()) == 0) != isInFeed {
			t.Fatalf("%v in %v: got %v, want what fits rank %d in %v", p, req, got, index+1, pinNames(feed))
		}
		if isInFeed && got.GetScore() != feed[index].GetScore() {
			t.Fatalf("%v in %v: got the score %v, want %v", p, req, got.GetScore(), feed[index].GetScore())
		}

		// A played item has the reason that it was played. A served item may have both reasons, and
		// has the reason that it was served unless it was played.
		item := got.GetPin().GetItemId()
		wantPlayed := hidesSeen && a.played[item]
		if slices.Contains(got.GetReasons(), itemPlayed) != wantPlayed {
			t.Fatalf("%v in %v: got the reasons %v, want played: %v", p, req, got.GetReasons(), wantPlayed)
		}
		isServed := hidesSeen && !req.GetIgnoreServed() && item != "" && slices.Contains(a.served, item) && a.seen(item, false)
		if isServed && !wantPlayed && !slices.Contains(got.GetReasons(), itemServed) {
			t.Fatalf("%v in %v: got the reasons %v, want served", p, req, got.GetReasons())
		}
	}
}

func TestExplainPinRefusesBadInput(t *testing.T) {
	w := newWorld(t, withAllStores)
	w.publish(pinned("bob", "", "p"))
	pin := pinNamed("bob", "p")
	for name, c := range map[string]struct {
		req           *skeinv1.ExplainPinRequest
		reason, field string
	}{
		"no reader":                       {&skeinv1.ExplainPinRequest{Pin: pin}, "INVALID_FIELD", "reader_id"},
		"no pin":                          {&skeinv1.ExplainPinRequest{ReaderId: "ann"}, "INVALID_FIELD", "pin"},
		"no pin id":                       {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("bob", "")}, "INVALID_FIELD", "pin.pin_id"},
		"owner with a space":              {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("b b", "p")}, "INVALID_FIELD", "pin.owner_id"},
		"reader id that is too long":      {&skeinv1.ExplainPinRequest{ReaderId: strings.Repeat("x", 129), Pin: pin}, "INVALID_FIELD", "reader_id"},
		"unknown order":                   {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pin, Order: 7}, "INVALID_FIELD", "order"},
		"ignore_served without hide_seen": {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pin, IgnoreServed: true}, "INVALID_FIELD", "ignore_served"},
		"damaged position":                {&skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pin, AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.ExplainPin(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestExplainPinDemandsRights checks that explanations are for the same callers as the feed of the
// reader, because they tell of mutes, blocks and plays.
func TestExplainPinDemandsRights(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, caller := range []string{"reader", "ann"} {
		feed := &skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}
		if got := g.as(g.tokens[caller]).explain(feed, "bob", "p"); got.GetRank() != 1 {
			t.Errorf("%s asks about the feed of ann: got %v, want rank 1", caller, got)
		}
	}

	req := &skeinv1.ExplainPinRequest{ReaderId: "bob", Pin: pinNamed("bob", "p")}
	for caller, wantReason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		t.Run(caller+" asks about the feed of bob", func(t *testing.T) {
			_, err := g.as(g.tokens[caller]).feed.ExplainPin(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodePermissionDenied, wantReason, "")
		})
	}
}

// TestExplainPinOfStoresThatAreBehind checks explanations while the counters are one event behind,
// and the seen store has no event.
func TestExplainPinOfStoresThatAreBehind(t *testing.T) {
	w := newWorld(t, withAllStores, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	first := w.publish(follow("ann", "bob"), pinned("bob", "", "old"), played("ann", "old"))
	second := w.publish(pinned("bob", "", "new"))
	envelopes := w.envelopes(2)
	err := errors.Join(
		w.store.Serving().Fold(envelopes),
		w.inbox.Serving().Fold(envelopes),
		w.counters.Serving().Fold(envelopes[:1]),
	)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("newest first", func(t *testing.T) {
		got := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann"}, "bob", "new")
		if got.GetRank() != 1 || got.GetPosition() != second {
			t.Errorf("got %v, want rank 1 at %s", got, second)
		}
	})
	t.Run("by heat", func(t *testing.T) {
		// The explanation is of the position of the counters, after which the pin was created.
		got := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat}, "bob", "new")
		if !slices.Equal(got.GetReasons(), []skeinv1.AbsenceReason{notRanked}) || got.GetPosition() != first {
			t.Errorf("got %v, want NOT_RANKED at %s", got, first)
		}
	})
	t.Run("without the seen store", func(t *testing.T) {
		// ann has played the item, but nothing is hidden, and the explanation says so.
		got := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true}, "bob", "old")
		if got.GetRank() != 2 || got.GetCompleteness() != seenUnavailable {
			t.Errorf("got %v, want rank 2, without the seen store", got)
		}
	})
	t.Run("at a position that the counters do not contain", func(t *testing.T) {
		req := &skeinv1.ExplainPinRequest{ReaderId: "ann", Pin: pinNamed("bob", "old"), Order: byHeat, AtLeast: second}
		_, err := w.feed.ExplainPin(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	})
}
