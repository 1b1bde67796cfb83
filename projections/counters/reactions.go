package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// reaction holds the facts about one reaction: that of a user to an item, of one kind.
type reaction struct {
	// backfillTime is the time of the latest backfilled fact that it holds, or 0. liveTime is the
	// time of the first live one since the last live end, or 0.
	backfillTime, liveTime events.Micros
	// hasLiveEnd is set once there was a live end. Backfilled facts come before it and so do not
	// count.
	hasLiveEnd bool
}

// The flags with which the value of a row begins.
const (
	reactionBackfilled byte = 1 << iota
	reactionLive
	reactionEnded

	// reactionBits is the number of flags.
	reactionBits = 3
)

// holds reports whether the reaction holds. Backfilled facts come before live ones.
func (r reaction) holds() bool { return r.liveTime != 0 || r.backfillTime != 0 && !r.hasLiveEnd }

// since returns the time of a reaction that holds, by the rule for all relations in
// docs/semantics.md: a backfilled fact that no live fact ended decides.
func (r reaction) since() events.Micros {
	if r.backfillTime != 0 && !r.hasLiveEnd {
		return r.backfillTime
	}
	return r.liveTime
}

// appendRow appends the value of a row: the flags, and then 8 bytes for each time that is not 0. It
// appends nothing for the zero reaction, which has no row.
func (r reaction) appendRow(dst []byte) []byte {
	if r == (reaction{}) {
		return dst
	}

	flags := len(dst)
	dst = append(dst, 0)
	if r.backfillTime != 0 {
		dst[flags] |= reactionBackfilled
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.backfillTime))
	}
	if r.liveTime != 0 {
		dst[flags] |= reactionLive
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.liveTime))
	}
	if r.hasLiveEnd {
		dst[flags] |= reactionEnded
	}
	return dst
}

func decodeReaction(row []byte) (r reaction, err error) {
	if len(row) == 0 || row[0] == 0 || row[0] >= 1<<reactionBits {
		return r, projections.RowError("reaction", row)
	}

	flags := row[0]
	rest := row[1:]
	r.hasLiveEnd = flags&reactionEnded != 0
	for _, field := range []struct {
		flag byte
		time *events.Micros
	}{
		{reactionBackfilled, &r.backfillTime},
		{reactionLive, &r.liveTime},
	} {
		if flags&field.flag == 0 {
			continue
		}
		if len(rest) < 8 {
			return reaction{}, projections.RowError("reaction", row)
		}
		*field.time = events.Micros(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
		if *field.time <= 0 {
			return reaction{}, projections.RowError("reaction", row)
		}
	}
	if len(rest) != 0 {
		return reaction{}, projections.RowError("reaction", row)
	}
	return r, nil
}

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
		after.liveTime = 0
		after.hasLiveEnd = true
	case ev.Backfill:
		// Heat is added in the order in which facts arrive. A backfilled reaction repeats any that
		// is known, but not one that has ended.
		addsHeat = before.backfillTime == 0 && before.liveTime == 0
		after.backfillTime = max(before.backfillTime, ev.Time)
	default:
		addsHeat = !before.holds()
		if before.liveTime == 0 {
			after.liveTime = ev.Time
		}
	}
	if c.batch.BackfillsClosed() && after.hasLiveEnd && after.liveTime == 0 {
		after = reaction{} // the end was kept only for late history
	}

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

// readReaction returns the facts under a key, or the zero reaction if there are none.
func readReaction(r projections.Reader, key []byte) (reaction, error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return reaction{}, err
	}
	return decodeReaction(row)
}

// writeReaction writes the facts about a reaction, and its entries in the lists of the user and of
// the item, as far as they change.
func (c *Counters) writeReaction(user, item, kind string, before, after reaction) {
	if after == before {
		return
	}

	c.key = reactionKey(c.key[:0], user, item, kind)
	c.value = after.appendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)

	if before.holds() == after.holds() && before.since() == after.since() {
		return
	}
	if before.holds() {
		c.key = reactedItemKey(c.key[:0], user, kind, before.since(), item)
		c.batch.Delete(c.key)
	}
	if after.holds() {
		c.key = reactedItemKey(c.key[:0], user, kind, after.since(), item)
		c.batch.Set(c.key, nil)
	}

	// Nobody but the user may know of a private reaction, so the item has no list of those.
	if events.IsPrivateReaction(kind) {
		return
	}
	if before.holds() {
		c.key = reactorKey(c.key[:0], item, kind, before.since(), user)
		c.batch.Delete(c.key)
	}
	if after.holds() {
		c.key = reactorKey(c.key[:0], item, kind, after.since(), user)
		c.batch.Set(c.key, nil)
	}
}

// countChange returns by how much the number of users who reacted changes.
func countChange(before, after reaction) int64 {
	switch {
	case after.holds() && !before.holds():
		return 1
	case before.holds() && !after.holds():
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
		delta = 0
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

	c.writeReaction(user, item, kind, before, reaction{})
	if events.IsPrivateReaction(kind) {
		return nil
	}
	return c.countReaction(item, kind, countChange(before, reaction{}), 0)
}
