package counters

import (
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Where an item stands. Everybody's list has all versions of its score that are kept. So has the list of an owner, where it has the item
// by its score; where it has it by its name, a page looks the score up. The list of an owner, or of a board, has every item that the
// owner has ever named. A page shows only those that a living pin shows now.
//
// So a session (I9), which reads the scores as of its position S and the pins as they are, gives every item of a list one sort key for its
// whole life: that of the version that holds at S, whether it stands in the list or is looked up; it is kept as long as the session
// lives (versions.go). A page shows all items of the list as it is whose sort keys are between the last one shown and its own end. An item
// that is in the list throughout has its sort key in just one of these ranges, and is met there exactly once. An item that comes or goes
// is met in that range if the list has it then: at most once, and never when it has gone. An item without a version at S came later, and
// is left out.
//
// An item that comes into a list by its score brings all its versions and not only the present one, since S may be of an older one.
//
// The home of an item cannot know how many items an owner has, only how many its own partition has of them. A list of few is computed
// from the pins (trending.go), so most owners cost nothing when a score changes: up to [named] pins of an owner in a partition stand by
// name, and with one more all items of the owner there stand by score. It stays so until the owner is deleted. Since an item must
// not cost rows without bound when its score changes, it is by its score in [listed] lists at most.

const (
	// named is by how many pins an owner may have named items of a partition before the owner's list has these by their scores.
	named = 3
	// listed is in how many lists of owners an item is by its score, at most.
	listed = 64
)

// candidate puts an item into the list of the owner who names it, by a pin that is not written yet.
func (c *Counters) candidate(it *itemRow) error {
	owner, item := c.ev.User, c.ev.Item
	prefix := namedIn(nil, owner, partitionOf(item))
	before, err := c.keys(prefix, projections.PrefixEnd(prefix), c.named+1)
	if err != nil {
		return err
	}
	if len(before) < c.named {
		c.byName(owner, item)
		return nil
	}
	if len(before) == c.named {
		if err := c.allByScore(owner, before, len(prefix)-1, it); err != nil {
			return err
		}
	}
	return c.byScore(owner, item, it)
}

// allByScore puts what was in the list of an owner by name into it by score: the items of some pins, of which one may be that of the
// event.
func (c *Counters) allByScore(owner string, pins [][]byte, cut int, it *itemRow) error {
	last := ""
	for _, key := range pins {
		item, _, err := cutNamed(key[cut:])
		if err != nil {
			return err
		}
		if item == last {
			continue
		}
		last = item
		if item == c.ev.Item {
			err = c.byScore(owner, item, it)
		} else {
			err = c.otherByScore(owner, item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Counters) otherByScore(owner, item string) error {
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if err := c.byScore(owner, item, &it); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}

func (c *Counters) byName(owner, item string) {
	c.key = nameKey(c.key[:0], ownerTopPrefix(owner), item)
	c.b.Set(c.key, nil)
}

// byScore puts an item into the list of an owner by its score, unless it is there, or is in so many already.
func (c *Counters) byScore(owner, item string, it *itemRow) error {
	key := projections.AppendKey(nil, tagListed, item, owner)
	if _, ok, err := c.b.Get(key); err != nil || ok {
		return err
	}
	if it.lists >= int64(c.listed) {
		c.byName(owner, item)
		return nil
	}
	it.lists++
	c.b.Set(key, nil)
	list := [][]byte{ownerTopPrefix(owner)}
	c.key = nameKey(c.key[:0], list[0], item)
	if _, ok, err := c.b.Get(c.key); err != nil {
		return err
	} else if ok {
		c.b.Delete(c.key)
	}
	versions, err := c.versions(item)
	if err != nil {
		return err
	}
	for i := range versions {
		c.list(list, item, &versions[i])
	}
	return nil
}

// listsOf returns the lists in which an item stands by its score.
func (c *Counters) listsOf(item string, it *itemRow) (lists [][]byte, err error) {
	lists = [][]byte{topPrefix()}
	if it.lists == 0 {
		return lists, nil
	}
	prefix := projections.AppendKey(nil, tagListed, item)
	keys, err := c.keys(prefix, projections.PrefixEnd(prefix), int(it.lists)+1)
	for _, key := range keys {
		owner, err := cutLast(key[len(prefix):])
		if err != nil {
			return nil, err
		}
		lists = append(lists, ownerTopPrefix(owner))
	}
	if err == nil && len(keys) != int(it.lists) {
		err = projections.RowError("lists of an item", prefix)
	}
	return lists, err
}

// endList removes the list of an owner who is deleted, and what was kept for it, in steps.
func (c *Counters) endList(owner string) error {
	prefix := projections.AppendKey(nil, tagNamed, owner)
	err := c.drain(prefix, func(rest []byte) error {
		item, _, err := cutNamed(rest)
		if err != nil {
			return err
		}
		c.b.Delete(append(slices.Clip(prefix), rest...))
		return c.unlisted(owner, item)
	})
	if err != nil {
		return err
	}
	return c.dropAll(ownerTopPrefix(owner))
}

// unlisted folds that the list of an owner has an item no longer, before its entries are removed.
func (c *Counters) unlisted(owner, item string) error {
	key := projections.AppendKey(nil, tagListed, item, owner)
	_, ok, err := c.b.Get(key)
	if err != nil || !ok {
		return err
	}
	c.b.Delete(key)
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if it.lists--; it.lists < 0 {
		return projections.RowError("lists of an item", key)
	}
	c.writeItem(item, &it)
	return nil
}

// Regions is part of [projections.Regional].
func (*Counters) Regions() []projections.Tag {
	return []projections.Tag{tagNamed, tagTop, tagOwnerTop, tagLiked}
}

// RegionHome is part of [projections.Regional]: lists, and what named or likes items, are at the homes of the items.
func (*Counters) RegionHome(key []byte) (partition uint8, ok bool) {
	tag := tagOf(key)
	if (tag < tagNamed || tag > tagOwnerTop) && tag != tagLiked {
		return 0, false
	}
	switch rest := key[3:]; tag {
	case tagNamed:
		_, rest, err := events.CutID(rest)
		if err != nil || len(rest) == 0 {
			return 0, false
		}
		return rest[0], true
	case tagOwnerTop:
		_, rest, err := events.CutID(rest)
		if err != nil {
			return 0, false
		}
		return homeOfEntry(rest)
	case tagTop:
		return homeOfEntry(rest)
	case tagLiked:
		_, rest, err := events.CutID(rest)
		if err != nil {
			return 0, false
		}
		_, item, err := cutLiked(rest)
		return partitionOf(item), err == nil
	}
	return 0, false
}

// homeOfEntry returns the partition of the item of an entry of a list.
func homeOfEntry(entry []byte) (partition uint8, ok bool) {
	if len(entry) == 0 {
		return 0, false
	}
	var item string
	var err error
	if entry[0] == entryName {
		item, err = cutLast(entry[1:])
	} else {
		item, _, _, err = cutVersionEntry(entry[1:])
	}
	return partitionOf(item), err == nil
}
