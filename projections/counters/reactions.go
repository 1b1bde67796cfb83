package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
	"github.com/skein-feed/skein/projections/internal/relation"
)

// decodeReaction reads the facts about one reaction: that of a user to an item, of one kind.
func decodeReaction(row []byte) (relation.Facts, error) { return relation.Decode("reaction", row) }

// applyReaction folds a reacted or unreacted at the home of the item. A reaction adds to the heat
// of the item unless it repeats one.
func (c *Counters) applyReaction() error {
	ev := c.ev
	c.key = reactionKey(c.key[:0], ev.User, ev.Item, ev.Reaction)
	before, err := readReaction(c.batch, c.key)
	if err != nil {
		return err
	}

	after := before
	addsHeat := false
	switch {
	case ev.Kind == events.Unreacted:
		after.LiveTime = 0
		after.HasLiveEnd = true
	case ev.Backfill:
		// Heat is added in the order in which facts arrive. A backfilled reaction repeats any that
		// is known, but not one that has ended.
		addsHeat = before.BackfillTime == 0 && before.LiveTime == 0
		after.BackfillTime = max(before.BackfillTime, ev.Time)
	default:
		addsHeat = !before.Holds()
		if before.LiveTime == 0 {
			after.LiveTime = ev.Time
		}
	}
	if c.batch.BackfillsClosed() && after.HasLiveEnd && after.LiveTime == 0 {
		after = relation.Facts{} // the end was kept only for late history
	}

	// A private reaction neither counts nor adds heat, because both would show it to others.
	c.writeReaction(ev.User, ev.Item, ev.Reaction, before, after)
	if events.IsPrivateReaction(ev.Reaction) {
		return nil
	}
	weight := uint32(0)
	if addsHeat {
		weight = c.reactionWeights[ev.Reaction]
	}
	return c.countReaction(ev.Item, ev.Reaction, countChange(before, after), weight)
}

// readReaction returns the facts under a key, or the zero value if there are none.
func readReaction(r projections.Reader, key []byte) (relation.Facts, error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return relation.Facts{}, err
	}
	return decodeReaction(row)
}

// writeReaction writes the facts about a reaction, and its entries in the lists of the user and of
// the item, as far as they change.
func (c *Counters) writeReaction(user, item, kind string, before, after relation.Facts) {
	if after == before {
		return
	}

	c.key = reactionKey(c.key[:0], user, item, kind)
	c.value = after.AppendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)

	if before.Holds() == after.Holds() && before.Since() == after.Since() {
		return
	}
	if before.Holds() {
		c.key = reactedItemKey(c.key[:0], user, kind, before.Since(), item)
		c.batch.Delete(c.key)
	}
	if after.Holds() {
		c.key = reactedItemKey(c.key[:0], user, kind, after.Since(), item)
		c.batch.Set(c.key, nil)
	}

	// Nobody but the user may know of a private reaction, so the item has no list of those.
	if events.IsPrivateReaction(kind) {
		return
	}
	if before.Holds() {
		c.key = reactorKey(c.key[:0], item, kind, before.Since(), user)
		c.batch.Delete(c.key)
	}
	if after.Holds() {
		c.key = reactorKey(c.key[:0], item, kind, after.Since(), user)
		c.batch.Set(c.key, nil)
	}
}

// countChange returns by how much the number of users who reacted changes.
func countChange(before, after relation.Facts) int64 {
	switch {
	case after.Holds() && !before.Holds():
		return 1
	case before.Holds() && !after.Holds():
		return -1
	}
	return 0
}

// countReaction adds to the number of users who reacted to an item with a kind, and to the heat of
// the item.
//
// Likes are counted in the row of the item, which a like must write anyway because of its heat.
// Every other kind has a row of its own, so that the row of an item stays small however many kinds
// there are. The row of the item says how many there are: if there are none, a query need not look
// for them.
func (c *Counters) countReaction(itemID, kind string, delta int64, weight uint32) error {
	otherKinds := int64(0)
	if kind != "" && delta != 0 {
		var err error
		if otherKinds, err = c.countOtherReaction(itemID, kind, delta); err != nil {
			return err
		}
		delta = 0 // only likes are counted in the row of the item
	}
	if delta == 0 && otherKinds == 0 && weight == 0 {
		return nil
	}

	item, err := c.readItem(itemID)
	if err != nil {
		return err
	}
	item.likes += delta
	item.otherKinds += otherKinds
	if item.likes < 0 || item.otherKinds < 0 {
		return projections.RowError("reactions below zero", item.appendRow(nil))
	}
	if err := c.addHeat(itemID, &item, weight); err != nil {
		return err
	}
	c.writeItem(itemID, &item)
	return nil
}

// countOtherReaction adds delta, which is not 0, to the row of a kind that is not a like. It
// returns by how much the number of such rows of the item changes.
func (c *Counters) countOtherReaction(item, kind string, delta int64) (kinds int64, err error) {
	c.key = reactionCountKey(c.key[:0], item, kind)
	before, err := readCount(c.batch, c.key)
	if err != nil {
		return 0, err
	}
	after := before + delta
	if after < 0 {
		return 0, projections.RowError("reactions below zero", c.key)
	}
	c.value = fields.AppendCounts(c.value[:0], []int64{after})
	c.setOrDelete(c.key, c.value)

	switch {
	case before == 0:
		return 1, nil
	case after == 0:
		return -1, nil
	}
	return 0, nil
}

// eraseReaction removes a reaction of a user who is deleted.
func (c *Counters) eraseReaction(user, item, kind string) error {
	c.key = reactionKey(c.key[:0], user, item, kind)
	before, err := readReaction(c.batch, c.key)
	if err != nil {
		return err
	}

	c.writeReaction(user, item, kind, before, relation.Facts{})
	if events.IsPrivateReaction(kind) {
		return nil
	}
	return c.countReaction(item, kind, countChange(before, relation.Facts{}), 0)
}
