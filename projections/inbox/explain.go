package inbox

import (
	"bytes"
	"context"
)

// Delivery is how a pin gets into the feed of a reader. It only serves explanations: a feed shows the same pins whichever way they
// come (I8).
type Delivery uint8

// The ways in which a pin is delivered.
const (
	// DeliveryNone: the pin is not in the feed.
	DeliveryNone Delivery = iota
	// DeliveryPushed: the owner has few enough followers in the partition of the reader that new pins are pushed to the inboxes of followers.
	// This says nothing about memory: the reader may have no inbox at the moment, and then the page merges outboxes.
	DeliveryPushed
	// DeliveryPulled: pages merge an outbox with the inbox of the reader, because the owner has too many followers for pushing or because the
	// owner is the reader.
	DeliveryPulled
)

// Explanation says why a pin is in a feed, and where, or why it is not.
type Explanation struct {
	// Pin is the pin as it is now, or nil if it does not live. Its Score is set if the feed is in the order Trending and the pin is among
	// the ranked pins, also when another pin of the same item takes its entry (AbsenceItemShown).
	Pin     *Pin
	Absence AbsenceReasons
	// Rank is the number of the pin's entry, counted from 1 over all pages of the feed. It is 0 if the pin is not in the feed.
	Rank     int
	Delivery Delivery
}

// Explain says why a pin is, or is not, in a feed: the feed that a reader gets who reads all pages of one session that begins at the
// position of the state.
//
// If the pin itself, the relation to the owner or [Feed.HiddenItems] keeps the pin out, Explain costs a few point reads. Otherwise it must find
// the pin's place among the other pins: in the order Newest it reads the feed down to the pin, and in the order Trending it reads all
// pins that are ranked. That holds also for a pin that turns out to be AbsenceNotRanked or AbsenceItemShown.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (Explanation, error) {
	pin, err := q.livingPin(owner, id)
	if err != nil {
		return Explanation{}, err
	}

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
	if explanation.Rank == 0 {
		return explanation, nil
	}

	if f.Only != 0 {
		explanation.Delivery = DeliveryPulled // pages read outboxes only
		return explanation, nil
	}
	if explanation.Delivery, err = q.delivery(f.Reader, explanation.Pin); err != nil {
		return Explanation{}, err
	}
	return explanation, nil
}

// isItemHidden asks [Feed.HiddenItems] about one item.
func isItemHidden(f *Feed, item string) (bool, error) {
	if f.HiddenItems == nil {
		return false, nil
	}
	hidden, err := f.HiddenItems([]string{item})
	return err == nil && hidden != nil && hidden[0], err
}

// explainBatch is how many pins explainNewest reads at a time. It asks [Feed.HiddenItems] once for each such batch.
const explainBatch = 512

// explainNewest ranks a pin that the reader may see, by counting the entries of the feed down to the pin.
func (q *Queries) explainNewest(ctx context.Context, f *Feed, pin *Pin) (_ Explanation, err error) {
	it, err := q.newFeedIterator(f, nil)
	if err != nil {
		return Explanation{}, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	// The bound of a batch is exclusive. No sort key lies between a key and the key with a zero byte behind it, so this bound ends the
	// feed right after the pin.
	sortKey := sortKeyOf(pin.Created, pin.Owner, pin.ID)
	bound := append(bytes.Clone(sortKey), 0)
	shownItems := map[string]bool{}

	count := 0
	var lastSortKey []byte
	for !it.ended {
		_, sortKeys, err := it.nextBatch(ctx, explainBatch, bound, shownItems)
		if err != nil {
			return Explanation{}, err
		}
		count += len(sortKeys)
		if len(sortKeys) > 0 {
			lastSortKey = sortKeys[len(sortKeys)-1]
		}
	}

	switch {
	case bytes.Equal(lastSortKey, sortKey):
		return Explanation{Pin: pin, Rank: count}, nil
	case f.OnePerItem && shownItems[pin.Item]:
		return Explanation{Pin: pin, Absence: AbsenceItemShown}, nil
	}
	// The reader may see the pin, and no other pin of its item came first. So its outbox row is missing.
	return Explanation{}, errRow("feed without a pin that its reader sees", sortKey)
}

// explainTrending ranks a pin that the reader may see, by reading all ranked pins.
func (q *Queries) explainTrending(ctx context.Context, f *Feed, pin *Pin) (Explanation, error) {
	// The number of ranked pins is limited before the feed is reduced to one entry per item, here as on pages. So this reads the ranked
	// pins without the reduction, which tells a pin that is AbsenceNotRanked from one that is only not the first of its item.
	//
	// Reducing them afterwards gives the entries of the pages: all pins of an item have the same score, so the newest of them comes first
	// here, and the newest is the one that pages keep.
	everyPin := *f
	everyPin.OnePerItem = false
	page, err := q.readTrending(ctx, &everyPin, nil, f.MaxRanked)
	if err != nil {
		return Explanation{}, err
	}

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

	// Unlike explainNewest, this cannot tell a pin whose outbox row is missing from one that is not ranked.
	reasons := AbsenceNotRanked
	if f.OnePerItem && shownItems[pin.Item] {
		reasons |= AbsenceItemShown
	}
	return Explanation{Pin: pin, Absence: reasons}, nil
}

// delivery reports how a pin gets into the feed of a reader. It looks at pull rows, not at inboxes in memory, so that all processes that
// hold the rows give the same answer.
func (q *Queries) delivery(reader string, p *Pin) (Delivery, error) {
	if p.Owner == reader {
		return DeliveryPulled, nil
	}

	// The pull row is one of the owner if the reader follows the owner, and one of the board if the reader follows only boards.
	_, pullsOwner, err := q.state.Get(pullKey(nil, reader, p.Owner, nil))
	if err != nil {
		return DeliveryNone, err
	}
	if pullsOwner {
		return DeliveryPulled, nil
	}
	_, pullsBoard, err := q.state.Get(pullKey(nil, reader, p.Owner, &p.Board))
	if err != nil {
		return DeliveryNone, err
	}
	if pullsBoard {
		return DeliveryPulled, nil
	}
	return DeliveryPushed, nil
}
