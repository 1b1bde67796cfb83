package counters

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// like is what was said about whether a user likes an item.
type like struct {
	// backfilled is the time of the latest backfilled like, live that of the first live one since the last end; 0 means there is none.
	backfillTime, liveTime events.Micros
	// ended: a live end was said, and history before it does not count.
	hasLiveEnd bool
}

const (
	likeBackfilled byte = 1 << iota
	likeLive
	likeEnded

	likeBits = 3
)

// holds reports whether the user likes the item: history comes before live facts.
func (l like) holds() bool { return l.liveTime != 0 || l.backfillTime != 0 && !l.hasLiveEnd }

// since is the time of a like that holds, by the rule of all relations (docs/semantics.md).
func (l like) since() events.Micros {
	if l.backfillTime != 0 && !l.hasLiveEnd {
		return l.backfillTime
	}
	return l.liveTime
}

// append appends the value of a row: flags, then 8 bytes for each time that there is. Nothing stands for nothing said.
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
	l.hasLiveEnd = row[0]&likeEnded != 0
	rest := row[1:]
	for _, t := range []struct {
		flag byte
		to   *events.Micros
	}{{likeBackfilled, &l.backfillTime}, {likeLive, &l.liveTime}} {
		if row[0]&t.flag == 0 {
			continue
		}
		if len(rest) < 8 {
			return like{}, projections.RowError("like", row)
		}
		if *t.to, rest = events.Micros(binary.BigEndian.Uint64(rest)), rest[8:]; *t.to <= 0 {
			return like{}, projections.RowError("like", row)
		}
	}
	if len(rest) != 0 {
		return like{}, projections.RowError("like", row)
	}
	return l, nil
}

// liked counts at the home of an item who likes it, and adds to its heat unless the like repeats what holds already.
func (c *Counters) applyLike() error {
	ev := c.ev
	c.key = likeKey(c.key[:0], ev.User, ev.Item)
	row, ok, err := c.batch.Get(c.key)
	if err != nil {
		return err
	}
	var was like
	if ok {
		if was, err = decodeLike(row); err != nil {
			return err
		}
	}
	is, adds := was, false
	switch {
	case ev.Kind == events.Unliked:
		is.liveTime, is.hasLiveEnd = 0, true
	case ev.Backfill:
		// Heat is added as facts arrive: if there is a like already, this one says nothing new; if one ended, it does.
		adds = was.backfillTime == 0 && was.liveTime == 0
		is.backfillTime = max(was.backfillTime, ev.Time)
	default:
		if adds = !was.holds(); was.liveTime == 0 {
			is.liveTime = ev.Time
		}
	}
	if c.batch.BackfillsClosed() && is.hasLiveEnd && is.liveTime == 0 {
		is = like{} // it was kept for late history only
	}
	c.writeLike(ev.User, ev.Item, was, is)
	if !adds && is.holds() == was.holds() {
		return nil
	}
	it, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	if err := c.updateLikeCount(&it, was, is); err != nil {
		return err
	}
	if adds {
		if err := c.addHeat(ev.Item, &it, c.settings.LikeWeight); err != nil {
			return err
		}
	}
	c.writeItem(ev.Item, &it)
	return nil
}

// writeLike turns the difference between what was said of an item before and now into rows.
func (c *Counters) writeLike(user, item string, was, is like) {
	if is == was {
		return
	}
	c.key, c.value = likeKey(c.key[:0], user, item), is.appendRow(c.value[:0])
	c.setOrDelete(c.key, c.value)
	if was.holds() == is.holds() && was.since() == is.since() {
		return
	}
	if was.holds() {
		c.key = likedItemKey(c.key[:0], user, was.since(), item)
		c.batch.Delete(c.key)
	}
	if is.holds() {
		c.key = likedItemKey(c.key[:0], user, is.since(), item)
		c.batch.Set(c.key, nil)
	}
}

func (c *Counters) updateLikeCount(it *itemRow, was, is like) error {
	switch {
	case is.holds() && !was.holds():
		it.likes++
	case was.holds() && !is.holds():
		it.likes--
	}
	if it.likes < 0 {
		return projections.RowError("likes below zero", it.appendRow(nil))
	}
	return nil
}

// endLike ends what a user who is deleted said of an item.
func (c *Counters) eraseLike(user, item string) error {
	c.key = likeKey(c.key[:0], user, item)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return err
	}
	was, err := decodeLike(row)
	if err != nil {
		return err
	}
	c.writeLike(user, item, was, like{})
	if !was.holds() {
		return nil
	}
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if err := c.updateLikeCount(&it, was, like{}); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}
