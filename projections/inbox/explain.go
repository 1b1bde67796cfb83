package inbox

import (
	"bytes"
	"context"
)

// Absence is what keeps a pin out of a feed: all reasons that hold. A pin that none of them keeps out is in the feed. A walk over a feed
// decides by the same, so that an explanation cannot differ from a page.
type Absence uint16

// The reasons.
const (
	// NotLiving: the pin was never created, or it ended, with its board or owner perhaps. The rows do not say which. It is on no board,
	// so [NotFollowed] then means that the reader follows neither the owner nor any board of the owner, and [BoardExcluded] cannot hold.
	NotLiving Absence = 1 << iota
	// OwnPin: the reader owns the pin, and the feed is not [Feed.Own].
	OwnPin
	// NotFollowed: the reader follows neither the owner nor the board.
	NotFollowed
	// BoardExcluded: the reader follows the owner, but not the board.
	BoardExcluded
	// OwnerMuted: the reader mutes the owner.
	OwnerMuted
	// RepinsHidden: the pin is a re-pin, and the reader hides the re-pins of the owner.
	RepinsHidden
	// Blocked: a block stands between the reader and the owner. It ends what they follow, so NotFollowed holds too.
	Blocked
	// Hidden: [Feed.Hide] hides the item.
	Hidden
	// NotRanked: in the order Trending, the pin is not among those that are ranked. It is asked only where nothing above holds.
	NotRanked
	// ItemShown: of a feed with one entry per item, another pin of the item comes first. It is asked only where nothing above holds but
	// NotRanked.
	ItemShown
)

// Delivery is how a pin gets into the feed of a reader.
type Delivery uint8

// The ways. Which one it is changes no answer (I8).
const (
	// NotDelivered: the pin is not in the feed.
	NotDelivered Delivery = iota
	// Pushed: it is brought to the inbox of the reader, once a page has begun one.
	Pushed
	// Pulled: an outbox is merged with the inbox.
	Pulled
)

// Explanation is why a pin is in a feed, and where, or why it is not.
type Explanation struct {
	// Pin is the pin, with its score if it is in a feed by heat; nil means that it does not live.
	Pin     *Pin
	Absence Absence
	// Rank is the number of the entry in the feed, from 1 on; 0 means that it is not in the feed.
	Rank     int
	Delivery Delivery
}

// Explain says why a pin is, or is not, in a feed as its pages show it at this position, from the first to the last. It costs some point
// reads for a pin that is kept out, and all pages up to the pin for one that is in the feed; in the order Trending, all that is ranked.
func (q *Queries) Explain(ctx context.Context, f Feed, owner, id string) (x Explanation, err error) {
	if x.Pin, err = q.livingPin(owner, id); err != nil {
		return x, err
	}
	w := &feedIterator{queries: q, feed: &f, visibilities: map[string]visibility{}}
	if x.Pin == nil {
		x.Absence, err = w.absence(owner, nil)
		x.Absence |= NotLiving
		return x, err
	}
	if x.Absence, err = w.absence(owner, x.Pin); err != nil {
		return x, err
	}
	if f.Hide != nil {
		hidden, err := f.Hide([]string{x.Pin.Item})
		if err != nil {
			return x, err
		}
		if hidden != nil && hidden[0] {
			x.Absence |= Hidden
		}
	}
	if x.Absence != 0 {
		return x, nil
	}
	sortKey := sortKeyOf(x.Pin.Created, owner, id)
	if f.Order == Trending {
		err = q.rankTrending(ctx, &f, &x)
	} else {
		err = q.rankNewest(ctx, &f, sortKey, &x)
	}
	if err == nil && x.Rank > 0 {
		x.Delivery, err = q.delivery(f.Reader, x.Pin)
	}
	return x, err
}

// explainBatch is how many pins are asked about at once whether they are hidden.
const explainBatch = 512

// rankNewest counts the entries of a feed down to a sort key.
func (q *Queries) rankNewest(ctx context.Context, f *Feed, sortKey []byte, x *Explanation) (err error) {
	w, err := q.newFeedIterator(f, nil)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := w.close(); err == nil {
			err = cerr
		}
	}()
	bound, shown, rank := append(bytes.Clone(sortKey), 0), map[string]bool{}, 0
	var last []byte
	for !w.ended {
		_, sortKeys, err := w.nextBatch(ctx, explainBatch, bound, shown)
		if err != nil {
			return err
		}
		if rank += len(sortKeys); len(sortKeys) > 0 {
			last = sortKeys[len(sortKeys)-1]
		}
	}
	switch {
	case bytes.Equal(last, sortKey):
		x.Rank = rank
	case f.OnePerItem:
		x.Absence = ItemShown
	default:
		return errRow("feed without a pin that its reader sees", sortKey)
	}
	return nil
}

// rankTrending looks for the pin among those that are ranked.
func (q *Queries) rankTrending(ctx context.Context, f *Feed, x *Explanation) error {
	all := *f
	all.OnePerItem = false
	page, err := q.readTrending(ctx, &all, nil, f.Ranked)
	if err != nil {
		return err
	}
	x.Absence = NotRanked
	rank, shown := 0, map[string]bool{}
	for i := range page.Pins {
		p := &page.Pins[i]
		first := !f.OnePerItem || !shown[p.Item]
		if first {
			rank++
		}
		shown[p.Item] = true
		if p.Owner != x.Pin.Owner || p.ID != x.Pin.ID {
			continue
		}
		if x.Pin, x.Absence = p, 0; first {
			x.Rank = rank
			return nil
		}
	}
	if shown[x.Pin.Item] && f.OnePerItem {
		x.Absence |= ItemShown
	}
	return nil
}

// delivery reports how a pin gets into a feed that has it: by what rows say, so that every process says the same.
func (q *Queries) delivery(name string, p *Pin) (Delivery, error) {
	if p.Owner == name {
		return Pulled, nil
	}
	for _, board := range []*string{nil, &p.Board} {
		if _, pulls, err := q.state.Get(pullKey(nil, name, p.Owner, board)); err != nil || pulls {
			return Pulled, err
		}
	}
	return Pushed, nil
}
