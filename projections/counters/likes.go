package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// likeFacts are what was said about whether a user likes an item.
type likeFacts byte

const (
	// likeBackfilled: a backfilled like was accepted.
	likeBackfilled likeFacts = 1 << iota
	// likeLive: the latest live fact is a like.
	likeLive
	// likeEnded: it is the end of one.
	likeEnded

	likeBits = 3
)

// holds reports whether the user likes the item: history comes before live facts.
func (f likeFacts) holds() bool {
	return f&likeLive != 0 || f&(likeBackfilled|likeEnded) == likeBackfilled
}

func decodeLike(row []byte) (likeFacts, error) {
	if len(row) != 1 || row[0] == 0 || row[0] >= 1<<likeBits {
		return 0, projections.RowError("like", row)
	}
	f := likeFacts(row[0])
	if f&likeLive != 0 && f&likeEnded != 0 {
		return 0, projections.RowError("like", row)
	}
	return f, nil
}

// liked counts at the home of an item who likes it, and adds to its heat unless the like repeats what holds already.
func (c *Counters) liked() error {
	ev := c.ev
	c.key = likeKey(c.key[:0], ev.User, ev.Item)
	row, ok, err := c.b.Get(c.key)
	if err != nil {
		return err
	}
	var was, is likeFacts
	if ok {
		if was, err = decodeLike(row); err != nil {
			return err
		}
	}
	adds := false
	switch {
	case ev.Kind == events.Unliked:
		is = was&^likeLive | likeEnded
	case ev.Backfill:
		// Heat is added as facts arrive: if there is a like already, this one says nothing new; if one ended, it does.
		is, adds = was|likeBackfilled, was&(likeBackfilled|likeLive) == 0
	default:
		is, adds = was&^likeEnded|likeLive, !was.holds()
	}
	if c.b.BackfillsClosed() && is&likeEnded != 0 {
		is = 0 // it was kept for late history only
	}
	if is != was {
		c.value = c.value[:0]
		if is != 0 {
			c.value = append(c.value, byte(is))
		}
		c.keep(c.key, c.value)
	}
	if !adds && is.holds() == was.holds() {
		return nil
	}
	it, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	if err := c.countLike(&it, was, is); err != nil {
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

func (c *Counters) countLike(it *itemRow, was, is likeFacts) error {
	switch {
	case is.holds() && !was.holds():
		it.likes++
	case was.holds() && !is.holds():
		it.likes--
	}
	if it.likes < 0 {
		return projections.RowError("likes below zero", it.append(nil))
	}
	return nil
}

// endLike ends what a user who is deleted said of an item.
func (c *Counters) endLike(user, item string) error {
	c.key = likeKey(c.key[:0], user, item)
	row, ok, err := c.b.Get(c.key)
	if err != nil || !ok {
		return err
	}
	was, err := decodeLike(row)
	if err != nil {
		return err
	}
	c.b.Delete(c.key)
	if !was.holds() {
		return nil
	}
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if err := c.countLike(&it, was, 0); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}
