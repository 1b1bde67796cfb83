package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// like holds the facts about whether a user likes an item.
type like struct {
	// backfillTime is the time of the latest backfilled like, or 0. liveTime is the time of the first live like since the
	// last live end, or 0.
	backfillTime, liveTime events.Micros
	// hasLiveEnd is set once there was a live end. Backfilled likes come before it and so do not count.
	hasLiveEnd bool
}

// The flags with which the value of a row begins.
const (
	likeBackfilled byte = 1 << iota
	likeLive
	likeEnded

	// likeBits is the number of flags.
	likeBits = 3
)

// holds reports whether the user likes the item. Backfilled facts come before live ones.
func (l like) holds() bool { return l.liveTime != 0 || l.backfillTime != 0 && !l.hasLiveEnd }

// since returns the time of a like that holds, by the rule for all relations in docs/semantics.md: a backfilled like that no
// live fact ended decides.
func (l like) since() events.Micros {
	if l.backfillTime != 0 && !l.hasLiveEnd {
		return l.backfillTime
	}
	return l.liveTime
}

// appendRow appends the value of a row: the flags, and then 8 bytes for each time that is not 0. It appends nothing for the
// zero like, which has no row.
func (l like) appendRow(dst []byte) []byte {
	if l == (like{}) {
		return dst
	}

	flags := len(dst)
	dst = append(dst, 0)
	if l.backfillTime != 0 {
		dst[flags] |= likeBackfilled
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.backfillTime))
	}
	if l.liveTime != 0 {
		dst[flags] |= likeLive
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.liveTime))
	}
	if l.hasLiveEnd {
		dst[flags] |= likeEnded
	}
	return dst
}

func decodeLike(row []byte) (l like, err error) {
	if len(row) == 0 || row[0] == 0 || row[0] >= 1<<likeBits {
		return l, projections.RowError("like", row)
	}

	flags := row[0]
	rest := row[1:]
	l.hasLiveEnd = flags&likeEnded != 0
	for _, field := range []struct {
		flag byte
		time *events.Micros
	}{
		{likeBackfilled, &l.backfillTime},
		{likeLive, &l.liveTime},
	} {
		if flags&field.flag == 0 {
			continue
		}
		if len(rest) < 8 {
			return like{}, projections.RowError("like", row)
		}
		*field.time = events.Micros(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
		if *field.time <= 0 {
			return like{}, projections.RowError("like", row)
		}
	}
	if len(rest) != 0 {
		return like{}, projections.RowError("like", row)
	}
	return l, nil
}

// applyLike folds a liked or unliked at the home of the item. A like adds to the heat of the item unless it repeats a like.
func (c *Counters) applyLike() error {
	ev := c.ev
	c.key = likeKey(c.key[:0], ev.User, ev.Item)
	row, ok, err := c.batch.Get(c.key)
	if err != nil {
		return err
	}
	var before like
	if ok {
		if before, err = decodeLike(row); err != nil {
			return err
		}
	}

	after := before
	addsHeat := false
	switch {
	case ev.Kind == events.Unliked:
		after.liveTime = 0
		after.hasLiveEnd = true
	case ev.Backfill:
		// Heat is added in the order in which facts arrive. A backfilled like repeats any like that is known, but not a like
		// that has ended.
		addsHeat = before.backfillTime == 0 && before.liveTime == 0
		after.backfillTime = max(before.backfillTime, ev.Time)
	default:
		addsHeat = !before.holds()
		if before.liveTime == 0 {
			after.liveTime = ev.Time
		}
	}
	if c.batch.BackfillsClosed() && after.hasLiveEnd && after.liveTime == 0 {
		after = like{} // the end was kept only for late history
	}

	c.writeLike(ev.User, ev.Item, before, after)
	if !addsHeat && after.holds() == before.holds() {
		return nil
	}

	item, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	if err := c.updateLikeCount(&item, before, after); err != nil {
		return err
	}
	if addsHeat {
		if err := c.addHeat(ev.Item, &item, c.settings.LikeWeight); err != nil {
			return err
		}
	}
	c.writeItem(ev.Item, &item)
	return nil
}

// writeLike writes the facts about a like, and its entry in the list of what the user likes, as far as they change.
func (c *Counters) writeLike(user, item string, before, after like) {
	if after == before {
		return
	}

	c.key = likeKey(c.key[:0], user, item)
	c.value = after.appendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)

	if before.holds() == after.holds() && before.since() == after.since() {
		return
	}
	if before.holds() {
		c.key = likedItemKey(c.key[:0], user, before.since(), item)
		c.batch.Delete(c.key)
	}
	if after.holds() {
		c.key = likedItemKey(c.key[:0], user, after.since(), item)
		c.batch.Set(c.key, nil)
	}
}

// updateLikeCount updates the number of likes of an item. The caller writes the item.
func (c *Counters) updateLikeCount(item *itemRow, before, after like) error {
	switch {
	case after.holds() && !before.holds():
		item.likes++
	case before.holds() && !after.holds():
		item.likes--
	}
	if item.likes < 0 {
		return projections.RowError("likes below zero", item.appendRow(nil))
	}
	return nil
}

// eraseLike removes a like of a user who is deleted.
func (c *Counters) eraseLike(user, item string) error {
	c.key = likeKey(c.key[:0], user, item)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return err
	}
	before, err := decodeLike(row)
	if err != nil {
		return err
	}

	c.writeLike(user, item, before, like{})
	if !before.holds() {
		return nil
	}

	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if err := c.updateLikeCount(&it, before, like{}); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}
