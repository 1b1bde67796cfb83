package inbox

import (
	"bytes"
	"context"
)

// Delivery is how the pages of a reader find the pins of an owner at the position of the state. It
// depends on the rows alone. Whether the reader has an inbox in memory, and how an older pin was
// once found, has no effect on it. Pages show the same pins either way.
type Delivery uint8

// The kinds of delivery.
const (
	// DeliveryNone: the pin is not in the feed.
	DeliveryNone Delivery = iota
	// DeliveryPushed: when the owner creates a pin, it is pushed to the inboxes of the followers in
	// the reader's partition.
	DeliveryPushed
	// DeliveryPulled: pages read the pin from an outbox, although the reader may have an inbox.
	// They do so for a feed with [Feed.Only], for the reader's own pins, and where a pull row says
	// that the owner or the board has too many followers for pushing.
	DeliveryPulled
)

// Explanation says at which place of a feed a pin is, or why it is absent.
type Explanation struct {
	// Pin is the pin at the position of the state, or nil if no such pin lives. Its Score is set if
	// explainTrending found the pin among the ranked pins.
	Pin *Pin
	// Absence is the set of reasons why the pin is absent, or 0 if it is in the feed.
	Absence AbsenceReasons
	// Rank is the pin's place in the feed, counted over all pages: 1 is the first entry. It is 0 if
	// the pin is absent. An entry is a pin that the feed shows; with [Feed.OnePerItem], that is one
	// pin per item.
	Rank int
	// Delivery is DeliveryNone if and only if the pin is absent.
	Delivery Delivery
}

// Explain says whether a pin is in a feed, and where or why not. The feed is that of a session
// which begins at the position of the state, over all pages.
//
// If the pin does not live, or the reader may not see the pin or its item, Explain costs a few
// point reads and one call of [Feed.HiddenItems]. Otherwise it looks for the pin among the others,
// whether the pin is there or not: in the order Newest it reads the feed down to the pin, and in
// the order Trending it reads all ranked pins.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (Explanation, error) {
	pin, err := q.livingPin(owner, id)
	if err != nil {
		return Explanation{}, err
	}

	// A pin that does not live is nil. The checker then gives the reasons that hold for all pins of
	// the owner.
	checker := newAbsenceChecker(q, &f)
	reasons, err := checker.reasons(owner, pin)
	if err != nil {
		return Explanation{}, err
	}
	if pin == nil {
		return Explanation{Absence: reasons | AbsenceNotLiving}, nil
	}

	hidden, err := isItemHidden(&f, pin.Item)
	if err != nil {
		return Explanation{}, err
	}
	if hidden {
		reasons |= AbsenceItemHidden
	}
	if reasons != 0 {
		return Explanation{Pin: pin, Absence: reasons}, nil
	}

	var explanation Explanation
	if f.Order == Trending {
		explanation, err = q.explainTrending(ctx, &f, pin)
	} else {
		explanation, err = q.explainNewest(ctx, &f, pin)
	}
	if err != nil {
		return Explanation{}, err
	}
	if explanation.Absence != 0 {
		return explanation, nil
	}

	explanation.Delivery, err = q.findDelivery(&f, pin)
	if err != nil {
		return Explanation{}, err
	}
	return explanation, nil
}

// isItemHidden asks [Feed.HiddenItems] about one item. The result of HiddenItems is nil or has one
// element per item.
func isItemHidden(f *Feed, item string) (bool, error) {
	if f.HiddenItems == nil {
		return false, nil
	}
	hidden, err := f.HiddenItems([]string{item})
	if err != nil || hidden == nil {
		return false, err
	}
	return hidden[0], nil
}

// explainBatch is how many pins explainNewest reads at a time. It asks [Feed.HiddenItems] once for
// each such batch.
const explainBatch = 512

// explainNewest finds the place of a pin in the order Newest, by counting the entries of the feed
// down to the pin. The caller has checked that the reader may see the pin.
func (q *Queries) explainNewest(ctx context.Context, f *Feed, pin *Pin) (_ Explanation, err error) {
	it, err := q.newFeedIterator(f, nil) // nil: from the top
	if err != nil {
		return Explanation{}, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	// The sort keys of newer pins are smaller. The smallest key after sortKey is sortKey with a
	// zero byte appended. It is an exclusive upper bound, so the iterator ends right after the pin.
	sortKey := sortKeyOf(pin.Created, pin.Owner, pin.ID)
	bound := append(bytes.Clone(sortKey), 0)
	shownItems := map[string]bool{} // nextBatch adds the items of the pins that it returns

	count := 0
	var lastSortKey []byte
	for !it.ended {
		_, sortKeys, batchErr := it.nextBatch(ctx, explainBatch, bound, shownItems)
		if batchErr != nil {
			return Explanation{}, batchErr
		}
		count += len(sortKeys)
		if len(sortKeys) > 0 {
			lastSortKey = sortKeys[len(sortKeys)-1] // valid until the iterator is closed
		}
	}

	if bytes.Equal(lastSortKey, sortKey) {
		return Explanation{Pin: pin, Rank: count}, nil
	}
	if f.OnePerItem && shownItems[pin.Item] {
		return Explanation{Pin: pin, Absence: AbsenceItemShown}, nil
	}
	// Nothing keeps the pin out of the feed, so its outbox must have lacked it, or the inbox that
	// was made from the outbox.
	return Explanation{}, errRow("feed that lacks a pin which the reader should see", sortKey)
}

// explainTrending finds the place of a pin in the order Trending by reading all ranked pins. The
// caller has checked that the reader may see the pin.
//
// If the outbox row of the pin is missing, the result is AbsenceNotRanked. explainNewest returns an
// error in that case.
func (q *Queries) explainTrending(ctx context.Context, f *Feed, pin *Pin) (Explanation, error) {
	// Read all ranked pins as one page, without OnePerItem, so that the page also has the pins of
	// items that another pin shows.
	ungrouped := *f
	ungrouped.OnePerItem = false
	page, err := q.readTrending(ctx, &ungrouped, nil, f.MaxRanked) // nil: the first page
	if err != nil {
		return Explanation{}, err
	}

	// With OnePerItem, the newest pin of each item is the entry. All pins of an item have the same
	// score, and pins of the same score are sorted newest first. So the entry is the first pin of
	// the item here.
	entries := 0
	shownItems := map[string]bool{}
	for i := range page.Pins {
		ranked := &page.Pins[i]
		isEntry := !f.OnePerItem || !shownItems[ranked.Item]
		shownItems[ranked.Item] = true
		if isEntry {
			entries++
		}
		if ranked.Owner != pin.Owner || ranked.ID != pin.ID {
			continue
		}
		if isEntry {
			return Explanation{Pin: ranked, Rank: entries}, nil
		}
		return Explanation{Pin: ranked, Absence: AbsenceItemShown}, nil
	}

	reasons := AbsenceNotRanked
	if f.OnePerItem && shownItems[pin.Item] {
		reasons |= AbsenceItemShown
	}
	return Explanation{Pin: pin, Absence: reasons}, nil
}

// findDelivery returns the delivery of a pin that is in the feed.
func (q *Queries) findDelivery(f *Feed, pin *Pin) (Delivery, error) {
	if f.Only != 0 || pin.Owner == f.Reader {
		return DeliveryPulled, nil
	}

	// A reader who follows the owner has at most a pull row for the owner. A reader who follows
	// only boards has at most one for each board.
	for _, board := range []*string{nil, &pin.Board} {
		_, pulled, err := q.state.Get(pullKey(nil, f.Reader, pin.Owner, board))
		if err != nil {
			return DeliveryNone, err
		}
		if pulled {
			return DeliveryPulled, nil
		}
	}
	return DeliveryPushed, nil
}
