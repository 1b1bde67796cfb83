package inbox

import (
	"bytes"
	"context"
)

// Delivery says from where the pages of a reader get a pin. The fold pushes each new pin of an
// owner to those inboxes of the owner's followers that are in memory. If too many users follow the
// owner, or boards of the owner, the fold does not push, and pages pull the pins from an outbox, to
// which a pull row of the reader leads (pulls.go). Delivery affects what a page costs, and not what
// it shows. Explain derives it from the present rows, not from what happened when the pin was
// created.
type Delivery uint8

// The kinds of delivery.
const (
	// DeliveryNone: the pin is not in the feed.
	DeliveryNone Delivery = iota
	// DeliveryPushed: pages find the pin in the reader's inbox, or in an outbox if the reader has
	// no inbox in memory.
	DeliveryPushed
	// DeliveryPulled: pages read the pin from an outbox, even if the reader has an inbox. There are
	// three cases: [Feed.Only] is set, the pin is the reader's own, or the reader has a pull row
	// for the owner or for the board of the pin.
	DeliveryPulled
)

// Explanation says where in a feed a pin is, or why it is absent.
type Explanation struct {
	// Pin is the pin, also if the feed does not show it. It is nil if the pin does not exist or was
	// deleted. Its Score is set in the order Trending, if the pin is ranked.
	Pin *Pin
	// Absence has the reasons why the pin is absent, or 0 if it is in the feed. It need not have
	// all of them: see [AbsenceReasons].
	Absence AbsenceReasons
	// Rank is the pin's place in the feed, counted over all its pages: 1 is the first. It is 0 if
	// the pin is absent. Pins that [Feed.OnePerItem] leaves out are not counted.
	Rank int
	// Delivery is DeliveryNone if and only if the pin is absent.
	Delivery Delivery
}

// Explain says whether a pin is in a feed, and where or why not. It answers for a reader who reads
// all pages of the feed, from the first to the last, in the view of q.
//
// If the pin does not exist, or is absent for a reason that does not depend on the other pins of
// the feed, Explain costs a few point reads and at most one call of [Feed.HiddenItems]. Otherwise,
// in the order Newest, Explain reads the feed down to the pin, and returns an error if the store is
// damaged and lacks the pin there. In the order Trending, it reads all ranked pins.
//
// [Feed.HiddenItems] must give the same answers throughout the call.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (Explanation, error) {
	pin, err := q.livingPin(owner, id)
	if err != nil {
		return Explanation{}, err
	}

	// If pin is nil, these are the reasons that hold for all pins of the owner.
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

// explainBatch is how many pins explainNewest reads from the iterator at a time. The iterator calls
// [Feed.HiddenItems] once for each batch.
const explainBatch = 512

// explainNewest finds the place of a pin in the order Newest, by counting the entries of the feed
// down to the pin. The caller has checked that the reader may see the pin.
func (q *Queries) explainNewest(ctx context.Context, f *Feed, pin *Pin) (_ Explanation, err error) {
	it, err := q.newFeedIterator(ctx, f, nil) // nil: from the top
	if err != nil {
		return Explanation{}, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	// Newer pins have smaller sort keys. The iterator ends before the first sort key that is bound
	// or greater. The smallest key that is greater than sortKey is sortKey followed by a zero byte,
	// so with that bound the pin itself is the last one.
	sortKey := sortKeyOf(pin.Created, pin.Owner, pin.ID)
	bound := append(bytes.Clone(sortKey), 0)
	shownItems := map[string]bool{} // with OnePerItem, nextBatch adds the items that it returns

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
	// Nothing keeps the pin out of the feed, so the outbox of its owner lacks a row, or the
	// reader's inbox lacks its sort key.
	return Explanation{}, errRow("feed that lacks a pin which the reader should see", sortKey)
}

// explainTrending finds the place of a pin in the order Trending by reading all ranked pins. The
// caller has checked that the reader may see the pin. A pin that is older than the [Feed.MaxRanked]
// newest pins of the feed is not ranked. explainTrending does not check whether the pin is so old.
// If the outbox lacks the row of the pin, or the inbox lacks its sort key, which is damage, then
// explainTrending also says that the pin is not ranked.
func (q *Queries) explainTrending(ctx context.Context, f *Feed, pin *Pin) (Explanation, error) {
	// Read all ranked pins as one page, without OnePerItem, so that the page also has the pins that
	// OnePerItem leaves out.
	ungrouped := *f
	ungrouped.OnePerItem = false
	page, err := q.readTrending(ctx, &ungrouped, nil, f.MaxRanked) // nil: the first page
	if err != nil {
		return Explanation{}, err
	}

	// With OnePerItem, only the first pin of each item counts as an entry of the feed. That is the
	// newest pin of the item: all of them have the score of the item, and pins with equal scores
	// are sorted newest first.
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

	// If the pins of the owner are pulled, each follower has pull rows for the owner. A reader who
	// follows the owner has one row, without a board. A reader who follows only boards of the owner
	// has one row per board, with the name of the board.
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
