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
	maxPinsByName = 3
	// listed is in how many lists of owners an item is by its score, at most.
	maxListsByScore = 64
)

// candidate puts an item into the list of the owner who names it, by a pin that is not written yet.
func (c *Counters) addCandidate(it *itemRow) error {
	owner, item := c.ev.User, c.ev.Item
	prefix := namedItemsPrefix(nil, owner, itemPartition(item))
	before, err := c.readKeys(prefix, projections.PrefixEnd(prefix), c.maxPinsByName+1)
	if err != nil {
		return err
	}
	if len(before) < c.maxPinsByName {
		c.listByName(owner, item)
		return nil
	}
	if len(before) == c.maxPinsByName {
		if err := c.listAllByScore(owner, before, len(prefix)-1, it); err != nil {
			return err
		}
	}
	return c.listByScore(owner, item, it)
}

// allByScore puts what was in the list of an owner by name into it by score: the items of some pins, of which one may be that of the
// event.
func (c *Counters) listAllByScore(owner string, pins [][]byte, cut int, it *itemRow) error {
	last := ""
	for _, key := range pins {
		item, _, err := cutNamedItem(key[cut:])
		if err != nil {
			return err
		}
		if item == last {
			continue
		}
		last = item
		if item == c.ev.Item {
			err = c.listByScore(owner, item, it)
		} else {
			err = c.listOtherByScore(owner, item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Counters) listOtherByScore(owner, item string) error {
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if err := c.listByScore(owner, item, &it); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}

func (c *Counters) listByName(owner, item string) {
	c.key = nameEntryKey(c.key[:0], ownerListPrefix(owner), item)
	c.batch.Set(c.key, nil)
}

// byScore puts an item into the list of an owner by its score, unless it is there, or is in so many already.
func (c *Counters) listByScore(owner, item string, it *itemRow) error {
	key := projections.AppendKey(nil, tagItemLists, item, owner)
	if _, ok, err := c.batch.Get(key); err != nil || ok {
		return err
	}
	if it.listsByScore >= int64(c.maxListsByScore) {
		c.listByName(owner, item)
		return nil
	}
	it.listsByScore++
	c.batch.Set(key, nil)
	list := [][]byte{ownerListPrefix(owner)}
	c.key = nameEntryKey(c.key[:0], list[0], item)
	if _, ok, err := c.batch.Get(c.key); err != nil {
		return err
	} else if ok {
		c.batch.Delete(c.key)
	}
	versions, err := c.readVersions(item)
	if err != nil {
		return err
	}
	for i := range versions {
		c.writeToLists(list, item, &versions[i])
	}
	return nil
}

// listsOf returns the lists in which an item stands by its score.
func (c *Counters) readListsByScore(item string, it *itemRow) (lists [][]byte, err error) {
	lists = [][]byte{globalListPrefix()}
	if it.listsByScore == 0 {
		return lists, nil
	}
	prefix := projections.AppendKey(nil, tagItemLists, item)
	keys, err := c.readKeys(prefix, projections.PrefixEnd(prefix), int(it.listsByScore)+1)
	for _, key := range keys {
		owner, err := cutLastID(key[len(prefix):])
		if err != nil {
			return nil, err
		}
		lists = append(lists, ownerListPrefix(owner))
	}
	if err == nil && len(keys) != int(it.listsByScore) {
		err = projections.RowError("lists of an item", prefix)
	}
	return lists, err
}

// endList removes the list of an owner who is deleted, and what was kept for it, in steps.
func (c *Counters) eraseOwnerList(owner string) error {
	prefix := projections.AppendKey(nil, tagNamedItem, owner)
	err := c.eraseRows(prefix, func(rest []byte) error {
		item, _, err := cutNamedItem(rest)
		if err != nil {
			return err
		}
		c.batch.Delete(append(slices.Clip(prefix), rest...))
		return c.forgetOwnerList(owner, item)
	})
	if err != nil {
		return err
	}
	return c.deleteRows(ownerListPrefix(owner))
}

// unlisted folds that the list of an owner has an item no longer, before its entries are removed.
func (c *Counters) forgetOwnerList(owner, item string) error {
	key := projections.AppendKey(nil, tagItemLists, item, owner)
	_, ok, err := c.batch.Get(key)
	if err != nil || !ok {
		return err
	}
	c.batch.Delete(key)
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	if it.listsByScore--; it.listsByScore < 0 {
		return projections.RowError("lists of an item", key)
	}
	c.writeItem(item, &it)
	return nil
}

// Regions is part of [projections.Regional].
func (*Counters) Regions() []projections.Tag {
	return []projections.Tag{tagNamedItem, tagGlobalList, tagOwnerList, tagLikedItem}
}

// RegionHome is part of [projections.Regional]: lists, and what named or likes items, are at the homes of the items.
func (*Counters) RegionHome(key []byte) (partition uint8, ok bool) {
	tag := tagOfKey(key)
	if (tag < tagNamedItem || tag > tagOwnerList) && tag != tagLikedItem {
		return 0, false
	}
	switch rest := key[3:]; tag {
	case tagNamedItem:
		_, rest, err := events.CutID(rest)
		if err != nil || len(rest) == 0 {
			return 0, false
		}
		return rest[0], true
	case tagOwnerList:
		_, rest, err := events.CutID(rest)
		if err != nil {
			return 0, false
		}
		return entryPartition(rest)
	case tagGlobalList:
		return entryPartition(rest)
	case tagLikedItem:
		_, rest, err := events.CutID(rest)
		if err != nil {
			return 0, false
		}
		_, item, err := cutLikedItem(rest)
		return itemPartition(item), err == nil
	}
	return 0, false
}

// homeOfEntry returns the partition of the item of an entry of a list.
func entryPartition(entry []byte) (partition uint8, ok bool) {
	if len(entry) == 0 {
		return 0, false
	}
	var item string
	var err error
	if entry[0] == entryByName {
		item, err = cutLastID(entry[1:])
	} else {
		item, _, _, err = cutScoreEntry(entry[1:])
	}
	return itemPartition(item), err == nil
}
