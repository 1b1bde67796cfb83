package counters

import (
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Which lists have an item. The global list has an entry for every stored version of every item's
// score. The list of an owner has every item that the owner has ever named, either by score, with
// an entry for each stored version, or by name, with one entry, and then a page looks the score up.
// A page shows only the items that a living pin shows now. A board has no list of its own: its page
// reads the list of the owner.
//
// Why a session shows no item twice and misses none (I9): a session reads the scores as of its
// position S, and the pins as they are now. So an item has the same sort key throughout the
// session: that of the version that holds at S, whether the entry has it or it is looked up, and
// that version is kept for as long as the session lives (versions.go). Each page shows the items,
// as the list is now, whose sort keys are after the end of the page before and up to its own end.
// An item that is in the list throughout has its sort key in exactly one of these ranges, and is
// shown exactly once. An item that comes or goes is shown if the list has it when its range is
// read: at most once, and never after it has gone. An item that has no version at S came later, and
// is left out.
//
// An item that gets into a list by score brings all its versions and not only the current one,
// because the S of a running session may be that of an older version.
//
// Why there are entries by name: most owners have few pins. Their lists are computed from the pins
// (trending.go), and a changed score should write no row for them. The home of an item does not
// know how many items an owner has, only how many its own partition has. Therefore up to
// [maxPinsByName] pins of an owner in a partition are listed by name; with one more, all items of
// the owner in the partition are listed by score. They stay so until the owner is deleted. For an
// item that very many owners have named, a changed score must not write rows without bound, so at
// most [maxListsByScore] lists of owners have an item by score.

const (
	// maxPinsByName is how many pins of an owner may have named items of a partition while the
	// owner's list has these items by name.
	maxPinsByName = 3
	// maxListsByScore is how many lists of owners may have an item by score.
	maxListsByScore = 64
)

// addCandidate adds the item of the event to the list of the owner, whose pin names it for the
// first time. The row of the named item is not written yet. The caller writes the item.
func (c *Counters) addCandidate(item *itemRow) error {
	owner, itemID := c.ev.User, c.ev.Item
	prefix := namedItemsPrefix(nil, owner, itemPartition(itemID))
	before, err := c.readKeys(prefix, projections.PrefixEnd(prefix), c.maxPinsByName+1)
	if err != nil {
		return err
	}

	if len(before) < c.maxPinsByName {
		c.listByName(owner, itemID)
		return nil
	}

	// This pin is one too many, so the items of all earlier ones change to entries by score.
	if len(before) == c.maxPinsByName {
		ownerPrefixLen := len(prefix) - 1 // without the partition
		if err := c.listAllByScore(owner, before, ownerPrefixLen, item); err != nil {
			return err
		}
	}
	return c.listByScore(owner, itemID, item)
}

// listAllByScore changes the items of some pins from entries by name to entries by score. namedKeys
// are the keys of the pins (tagNamedItem), whose first ownerPrefixLen bytes are those of the owner.
// eventItem is the row of the item of the event, which may be among them, and which the caller
// writes.
func (c *Counters) listAllByScore(owner string, namedKeys [][]byte, ownerPrefixLen int, eventItem *itemRow) error {
	last := ""
	for _, key := range namedKeys {
		item, _, err := cutNamedItem(key[ownerPrefixLen:])
		if err != nil {
			return err
		}
		if item == last {
			continue // another pin of the same item
		}
		last = item

		if item == c.ev.Item {
			err = c.listByScore(owner, item, eventItem)
		} else {
			err = c.listOtherByScore(owner, item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listOtherByScore is listByScore for an item that the event is not about: it also reads and writes
// the item.
func (c *Counters) listOtherByScore(owner, id string) error {
	item, err := c.readItem(id)
	if err != nil {
		return err
	}
	if err := c.listByScore(owner, id, &item); err != nil {
		return err
	}
	c.writeItem(id, &item)
	return nil
}

// listByName adds an item to the list of an owner by name.
func (c *Counters) listByName(owner, item string) {
	c.key = nameEntryKey(c.key[:0], ownerListPrefix(owner), item)
	c.batch.Set(c.key, nil)
}

// listByScore adds an item to the list of an owner by score, and removes its entry by name. If too
// many lists have the item by score, it is added by name. The caller writes the item.
func (c *Counters) listByScore(owner, id string, item *itemRow) error {
	key := projections.AppendKey(nil, tagItemLists, id, owner)
	_, isListed, err := c.batch.Get(key)
	if err != nil || isListed {
		return err
	}
	if item.listsByScore >= int64(c.maxListsByScore) {
		c.listByName(owner, id)
		return nil
	}
	item.listsByScore++
	c.batch.Set(key, nil)

	// An item must not be in the list by name and by score, or a page would show it twice.
	list := ownerListPrefix(owner)
	c.key = nameEntryKey(c.key[:0], list, id)
	_, isByName, err := c.batch.Get(c.key)
	if err != nil {
		return err
	}
	if isByName {
		c.batch.Delete(c.key)
	}

	versions, err := readVersions(c.batch, id, item)
	if err != nil {
		return err
	}
	for i := range versions {
		c.writeToLists([][]byte{list}, id, &versions[i])
	}
	return nil
}

// readListsByScore returns the prefixes of the lists that have an item by score: the global list
// and those of owners.
func (c *Counters) readListsByScore(id string, item *itemRow) (lists [][]byte, err error) {
	if item.listsByScore == 0 {
		return c.globalListOnly, nil
	}
	lists = slices.Clone(c.globalListOnly)

	// One key more than there should be is read, to notice if the number is wrong.
	prefix := projections.AppendKey(nil, tagItemLists, id)
	keys, err := c.readKeys(prefix, projections.PrefixEnd(prefix), int(item.listsByScore)+1)
	if err != nil {
		return nil, err
	}
	if len(keys) != int(item.listsByScore) {
		return nil, projections.RowError("lists of an item", prefix)
	}
	for _, key := range keys {
		owner, err := cutLastID(key[len(prefix):])
		if err != nil {
			return nil, err
		}
		lists = append(lists, ownerListPrefix(owner))
	}
	return lists, nil
}

// eraseOwnerList removes the list of an owner who is deleted, and the rows about the items that the
// owner named, in steps.
func (c *Counters) eraseOwnerList(owner string) error {
	prefix := projections.AppendKey(nil, tagNamedItem, owner)
	err := c.batch.EraseRows(prefix, func(rest []byte) error {
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

// forgetOwnerList records that the list of an owner no longer has the item by score. The caller
// removes the entries of the list.
func (c *Counters) forgetOwnerList(owner, id string) error {
	key := projections.AppendKey(nil, tagItemLists, id, owner)
	_, isListed, err := c.batch.Get(key)
	if err != nil || !isListed {
		return err
	}
	c.batch.Delete(key)

	item, err := c.readItem(id)
	if err != nil {
		return err
	}
	item.listsByScore--
	if item.listsByScore < 0 {
		return projections.RowError("lists of an item", key)
	}
	c.writeItem(id, &item)
	return nil
}

// Regions is part of [projections.Regional].
func (*Counters) Regions() []projections.Tag {
	return []projections.Tag{tagNamedItem, tagGlobalList, tagOwnerList, tagReactedItem}
}

// RegionHome is part of [projections.Regional]. The rows of lists by heat, and those about the
// items that a user named or reacted to, are at the homes of the items.
func (*Counters) RegionHome(key []byte) (partition uint8, ok bool) {
	switch tag := tagOfKey(key); tag {
	case tagNamedItem:
		_, rest, err := events.CutID(key[3:])
		if err != nil || len(rest) == 0 {
			return 0, false
		}
		return rest[0], true
	case tagOwnerList:
		_, rest, err := events.CutID(key[3:])
		if err != nil {
			return 0, false
		}
		return entryPartition(rest)
	case tagGlobalList:
		return entryPartition(key[3:])
	case tagReactedItem:
		_, rest, err := events.CutID(key[3:])
		if err != nil {
			return 0, false
		}
		_, sortKey, err := cutReactionKind(rest)
		if err != nil {
			return 0, false
		}
		_, item, err := cutSince(sortKey)
		return itemPartition(item), err == nil
	}
	return 0, false
}

// entryPartition returns the partition of the item of a list entry, given the part of the key that
// follows the list's prefix.
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
