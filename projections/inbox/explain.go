package inbox

import (
	"bytes"
	"context"
)

// Delivery says where the pages of a reader find a pin. When a live event creates a pin, the fold
// normally pushes the pin: it adds the pin to the inboxes of the readers who follow the owner or
// the board. Inboxes exist only in memory, and not every reader has one. If too many users of a
// partition follow the owner, or boards of the owner, the fold does not push the owner's pins to
// the readers of this partition. Each of these readers then has pull rows, which name the outboxes
// that pages read in addition to the inbox (pulls.go).
//
// The delivery of a pin affects the cost of a page, and never the pins that the page shows.
// [Queries.Explain] derives the delivery from the present rows, and not from what happened when the
// pin was created.
type Delivery uint8

// The kinds of delivery.
const (
	// DeliveryNone: the pin is not in the feed.
	DeliveryNone Delivery = iota
	// DeliveryPushed: pages find the pin in the reader's inbox. They find it in an outbox if the
	// reader has no inbox, or if the inbox does not reach back to the pin (see floor in
	// feedIterator). Explain does not look at the inbox, so it does not tell these cases apart.
	DeliveryPushed
	// DeliveryPulled: pages read an outbox that has the pin, even if the reader has an inbox. There
	// are three cases: [Feed.Only] is set, the pin is the reader's own, or the reader has a pull
	// row for the owner or for the board of the pin. A pin with a pull row may be in the inbox as
	// well.
	DeliveryPulled
)

// Explanation says where in a feed a pin is, or why it is absent.
type Explanation struct {
	// Pin is the pin, even if the feed does not show the pin. It is nil if the pin was never
	// created or was deleted. Pin.Score is set only in the order Trending, and only if the pin is
	// in the feed or if its only reason for absence is AbsenceItemShown.
	Pin *Pin
	// Absence has the reasons why the pin is absent, or 0 if the pin is in the feed. Absence need
	// not have all reasons that hold: see [AbsenceReasons].
	Absence AbsenceReasons
	// Rank is the place of the pin in the feed, counted from 1 over all pages. It is 0 if the pin
	// is absent. Only pins that the feed shows are counted, so pins that [Feed.HiddenItems] or
	// [Feed.OnePerItem] leaves out are not.
	Rank int
	// Delivery says where pages find the pin. It is DeliveryNone if and only if the pin is absent.
	Delivery Delivery
}

// Explain says whether a pin is in a feed. If the pin is in the feed, Explain says at which place,
// and otherwise why it is absent. The answer is about all pages of the feed, from the first to the
// last, as a reader would see them if all of them were read at the position of the state of q.
//
// The caller must not set [Feed.NewerThan] or [Feed.UnreadOnly]. Explain ignores UnreadOnly. It
// ignores NewerThan in the order Newest. In the order Trending, it returns [ErrPageCursor] for
// NewerThan, unless it finds a reason for absence before it reads the feed.
//
// If the pin does not exist, or is absent for a reason that does not depend on the other pins of
// the feed, Explain costs a few point reads, a scan of the list of selected owners if [Feed.Only]
// is set, and at most one call of [Feed.HiddenItems].
//
// Otherwise, the other pins decide the answer, and Explain reads the feed: in the order Newest from
// the top down to the pin, and in the order Trending all ranked pins. Like a page, Explain may then
// add what it has merged from outboxes to the reader's inbox in memory.
//
// In the order Newest, Explain returns an error that wraps [projections.ErrCorrupt] if the reader
// may see the pin but the feed lacks it. If the rows of the owner are on another node, Explain
// reports AbsenceNotLiving instead, because the pin may have been created or deleted between the
// positions at which nodes have answered. In the order Trending, Explain reports AbsenceNotRanked.
//
// [Feed.HiddenItems] must give the same answers throughout the call, because Explain first asks
// about the item of the pin, and then asks about the items of the feed, among which that item is
// again. If the second answer hid the item, Explain would report corruption or a wrong reason.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (Explanation, error) {
	pin, err := q.livingPin(owner, id)
	if err != nil {
		return Explanation{}, err
	}

	// If pin is nil, checker.reasons returns the reasons that hold for all pins of the owner.
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

// isItemHidden reports whether [Feed.HiddenItems] leaves out the pins of an item. HiddenItems
// returns nil, which leaves out no pins, or one element per item.
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
// [Feed.HiddenItems] once for each batch of up to explainBatch pins. A call costs as much as
// reading several pins, so a batch has many pins.
const explainBatch = 512

// explainNewest finds the place of a pin in the order Newest. It counts the entries of the feed
// from the top down to the pin. The caller has checked that the reader may see the pin and that
// [Feed.HiddenItems] does not hide its item. So the only reasons for absence that explainNewest can
// find are AbsenceItemShown and, for a pin of another node, AbsenceNotLiving.
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

	// Newer pins have smaller sort keys. The smallest key that is greater than sortKey is sortKey
	// followed by a zero byte. With this bound, the pin itself is the last entry, if it is in the
	// feed.
	sortKey := sortKeyOf(pin.Created, pin.Owner, pin.ID)
	it.bound = append(bytes.Clone(sortKey), 0)

	// With OnePerItem, nextBatch adds the item of each pin that it reads to shownItems. That
	// includes items that HiddenItems then hides. The item of this pin is not hidden, so if it is
	// in shownItems, the feed has an entry with the item.
	shownItems := map[string]bool{}

	count := 0
	var lastSortKey []byte
	for !it.ended {
		_, sortKeys, batchErr := it.nextBatch(ctx, explainBatch, shownItems)
		if batchErr != nil {
			return Explanation{}, batchErr
		}
		count += len(sortKeys)
		if len(sortKeys) > 0 {
			// The sort key needs no copy, because the iterator never reuses the memory of sort
			// keys.
			lastSortKey = sortKeys[len(sortKeys)-1]
		}
	}

	if bytes.Equal(lastSortKey, sortKey) {
		return Explanation{Pin: pin, Rank: count}, nil
	}
	if f.OnePerItem && shownItems[pin.Item] {
		return Explanation{Pin: pin, Absence: AbsenceItemShown}, nil
	}
	if q.isRemote(pin.Owner) {
		// The answers of other nodes about the pin and about the outbox may be of different
		// positions, which may also be later than that of q.state. The pin did not live at one of
		// these positions.
		return Explanation{Absence: AbsenceNotLiving}, nil
	}

	// There is no reason for the absence of the pin, so take the absence for corruption. For
	// example, the outbox of the owner or the board lacks the row of the pin, or the reader's inbox
	// lacks the sort key of the pin.
	return Explanation{}, errRow("feed that lacks a pin which the reader should see", sortKey)
}

// explainTrending finds the place of a pin in the order Trending. It reads all ranked pins, and
// reports AbsenceNotRanked if the pin is not among them. The caller has checked that the reader may
// see the pin and that [Feed.HiddenItems] does not hide its item.
//
// explainTrending does not find out why the pin is not ranked. The pin may be older than the newest
// [Feed.MaxRanked] pins of the feed, or newer than the position whose scores are used. It may also
// be missing because an outbox lacks its row or the inbox lacks its sort key. Unlike explainNewest,
// explainTrending does not detect this corruption.
func (q *Queries) explainTrending(ctx context.Context, f *Feed, pin *Pin) (Explanation, error) {
	// Read all ranked pins as one page. Do not set OnePerItem, so that the page also has the ranked
	// pins that OnePerItem leaves out. OnePerItem does not change which pins are read: the pins
	// that it leaves out count toward MaxRanked, too.
	ungrouped := *f
	ungrouped.OnePerItem = false
	page, err := q.readTrending(ctx, &ungrouped, nil, f.MaxRanked) // nil: the first page
	if err != nil {
		return Explanation{}, err
	}

	// With OnePerItem, the feed shows the newest ranked pin of each item (readTrending). In the
	// page, this is the first pin of the item, because all pins of an item have the same score, and
	// pins with equal scores are sorted newest first.
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

	// If the owner is pulled in the reader's partition, a reader who follows the owner explicitly
	// has one pull row, without a board. A reader who follows only boards of the owner has one pull
	// row for each of these boards, with the id of the board. A pull row for another board does not
	// matter here, because the outbox that it names does not have the pin.
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
