package inbox

import (
	"bytes"
	"context"
)

// Delivery is where the pages of a feed now find a pin: in the inbox of the reader, to which pins
// are pushed when they are created, or in an outbox. It follows from the feed, the owner and the
// rows of the view. It is not a record of what happened when the pin was created, and it does not
// depend on which inboxes are in memory. It decides what a page costs, and not what a page shows.
type Delivery uint8

// The kinds of delivery.
const (
	// DeliveryNone: the pin is not in the feed.
	DeliveryNone Delivery = iota
	// DeliveryPushed: new pins of the owner are pushed to the inboxes of followers.
	DeliveryPushed
	// DeliveryPulled: pages read the pin from an outbox, whether the reader has an inbox or not:
	// in a feed with [Feed.Only], for the reader's own pins, and if a pull row of the reader says
	// that the owner or the board has too many followers for pushing.
	DeliveryPulled
)

// Explanation says where in a feed a pin is, or why it is absent.
type Explanation struct {
	// Pin is the pin, or nil if there is none or it was deleted. Its Score is set if the order is
	// Trending and the pin is ranked.
	Pin *Pin
	// Absence is the set of reasons why the pin is absent, or 0 if it is in the feed.
	Absence AbsenceReasons
	// Rank is the pin's place among the entries of all pages: 1 is the first entry. It is 0 if the
	// pin is absent. Entries are the pins that the feed shows. With [Feed.OnePerItem], only the
	// first pin of each item is an entry.
	Rank int
	// Delivery is DeliveryNone if and only if the pin is absent.
	Delivery Delivery
}

// Explain says whether a pin is in a feed, and where or why not. It explains the feed that a reader
// would get who now began at the first page and read all pages of this view.
//
// If the pin does not exist, or the reader does not see it, Explain costs a few point reads and at
// most one call of [Feed.HiddenItems]. Otherwise the cost grows with the feed: in the order Newest,
// Explain reads all entries that are newer than the pin, and in the order Trending all ranked pins.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (Explanation, error) {
	pin, err := q.livingPin(owner, id)
	if err != nil {
		return Explanation{}, err
	}

	// For a nil pin, which does not exist, the checker gives the reasons that hold for all pins of
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

// explainBatch is how many pins explainNewest takes from the iterator at a time. The iterator calls
// [Feed.HiddenItems] once for each batch.
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

	// Newer pins have smaller sort keys. The bound is exclusive, and no sort key lies between that
	// of the pin and the same with a zero byte appended, so the iterator ends right after the pin.
	sortKey := sortKeyOf(pin.Created, pin.Owner, pin.ID)
	bound := append(bytes.Clone(sortKey), 0)
	shownItems := map[string]bool{} // with OnePerItem, nextBatch adds the items of its pins

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
	// Nothing keeps the pin out of the feed, so a row is missing from the outbox of its owner, or
	// an entry from the inbox of the reader.
	return Explanation{}, errRow("feed that lacks a pin which the reader should see", sortKey)
}

// explainTrending finds the place of a pin in the order Trending by reading all ranked pins. The
// caller has checked that the reader may see the pin. A pin that is older than the [Feed.MaxRanked]
// newest pins of the feed is not ranked. Unlike explainNewest, it cannot tell this from a missing
// row of an outbox.
func (q *Queries) explainTrending(ctx context.Context, f *Feed, pin *Pin) (Explanation, error) {
	// Read all ranked pins as one page, without OnePerItem, so that the page also has the pins that
	// OnePerItem leaves out.
	ungrouped := *f
	ungrouped.OnePerItem = false
	page, err := q.readTrending(ctx, &ungrouped, nil, f.MaxRanked) // nil: the first page
	if err != nil {
		return Explanation{}, err
	}

	// With OnePerItem, the first pin of each item is the entry: the newest, because the score is
	// that of the item, and pins of the same score are sorted newest first.
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

	// A pull row is about all pins of an owner, which is the nil board, or about one board. A
	// reader has the first kind for an owner whom the reader follows, and the second for followed
	// boards of other owners.
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
