package counters

import (
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// This file decides which lists by heat have an item, and in which form.
//
// The global list has an entry for every stored version of every item's score. The list of an owner
// has every item that a pin of the owner was ever created to show (candidates.go), until the owner
// is deleted. Only a creation on a deleted board, which is void, adds no item, unless it is a
// re-pin. The list has each item in one of two forms:
//
//   - by score: one entry for each stored version of the item's score;
//   - by name: one entry without a score. Each page that reads the list looks the score up.
//
// A page of an owner's list shows only those of the items that a living pin of the owner shows now.
// A board has no list of its own: its page reads the list of the owner.
//
// Why a session shows no item twice and misses none (I9): a session reads the scores as of the
// position S at which it began, and the pins as they are now. So an item has the same sort key
// throughout the session: that of the version that holds at S. This is true in both forms, and the
// version is kept for as long as the session lives (versions.go). Each page shows the items, as the
// list is now, whose sort keys are after the end of the page before and up to its own end. An item
// that is in the list throughout has its sort key in exactly one of these ranges, and is shown
// exactly once. An item that comes or goes is shown if the list has it when its range is read: at
// most once, and never after it has gone. An item without a version at S got its first score later,
// and the session leaves it out.
//
// When an item gets into a list by score, the list gets entries for all stored versions and not
// only for the current one, because an ended version may be the one that holds at the S of a
// running session.
//
// Why there are entries by name: most owners have few pins. Their pages are computed from the pins
// (trending.go) and do not read the list, so a changed score should write no entries for them. Only
// the home of the owner knows how many pins the owner has. The home of an item, which writes the
// entries, knows only how many pins of the owner have named items of its own partition. Therefore,
// while these are at most [maxPinsByName], the owner's list has the items by name. With one more
// pin, all items of the owner in the partition change to entries by score. They stay in this form
// until the owner is deleted, even if the pins end.
//
// For an item that very many owners have named, a changed score must not write rows without bound.
// So at most [maxListsByScore] lists of owners have an item by score. The lists of further owners
// have the item by name, however many pins these owners have.

const (
	// maxPinsByName is how many pins of an owner may have named items of one partition while the
	// owner's list has these items by name. Pins that have ended count, too, and so do several pins
	// of one item.
	maxPinsByName = 3
	// maxListsByScore is how many lists of owners may have one item by score. The global list does
	// not count.
	maxListsByScore = 64
)

// addCandidate adds the item of the event to the list of the user of the event, whose pin names the
// item for the first time. Other pins of this user may have named the item before. The caller
// writes the row of the named item (tagNamedItem) for this pin, and does so only after
// addCandidate, which counts the earlier pins by their rows. item is the row of the item;
// addCandidate may change its listsByScore, and the caller writes it.
func (c *Counters) addCandidate(item *itemRow) error {
	owner, itemID := c.ev.User, c.ev.Item
	prefix := namedItemsPrefix(nil, owner, itemPartition(itemID))
	// Read one key more than the limit, to see whether an earlier pin has already exceeded it.
	earlierPins, err := c.readKeys(prefix, projections.PrefixEnd(prefix), c.maxPinsByName+1)
	if err != nil {
		return err
	}

	if len(earlierPins) < c.maxPinsByName {
		c.listByName(owner, itemID)
		return nil
	}

	// This pin is the first one beyond the limit, so the items of all earlier pins change from
	// entries by name to entries by score.
	if len(earlierPins) == c.maxPinsByName {
		ownerPrefixLen := len(prefix) - 1 // without the partition
		if err := c.listAllByScore(owner, earlierPins, ownerPrefixLen, item); err != nil {
			return err
		}
	}
	return c.listByScore(owner, itemID, item)
}

// listAllByScore changes the items that some pins of an owner named from entries by name to entries
// by score. namedKeys are the keys of the rows of these pins (tagNamedItem) in key order. Their
// first ownerPrefixLen bytes are the prefix of all such rows of the owner. eventItem is the row of
// the item of the event, which may be one of the items. The caller writes eventItem, and
// listAllByScore writes the rows of the other items.
func (c *Counters) listAllByScore(owner string, namedKeys [][]byte, ownerPrefixLen int, eventItem *itemRow) error {
	last := ""
	for _, key := range namedKeys {
		item, _, err := cutNamedItem(key[ownerPrefixLen:])
		if err != nil {
			return err
		}
		if item == last {
			continue // another pin that named the same item, which follows in key order
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

// listOtherByScore does what listByScore does, for an item that the event is not about. The caller
// has no row of this item, so listOtherByScore also reads and writes the row.
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

// listByName adds an item to the list of an owner by name. It changes nothing if the list already
// has this entry.
func (c *Counters) listByName(owner, item string) {
	c.key = nameEntryKey(c.key[:0], ownerListPrefix(owner), item)
	c.batch.Set(c.key, nil)
}

// listByScore adds an item to the list of an owner by score, and removes the item's entry by name
// if there is one. It does nothing if the list already has the item by score. If
// [maxListsByScore] other lists have the item by score, listByScore adds the item by name instead.
// item is the row of the item; listByScore may change its listsByScore, and the caller writes it.
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

	// The list may have the item by name. It must not have the item in both forms, or a page would
	// show the item twice.
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

// readListsByScore returns the prefixes of the lists that have an item by score: the global list,
// which has every item in this form, and those of owners. item is the row of the item. The caller
// must not change the result, which all items without lists of owners share.
func (c *Counters) readListsByScore(id string, item *itemRow) (lists [][]byte, err error) {
	if item.listsByScore == 0 {
		return c.globalListOnly, nil
	}
	lists = slices.Clone(c.globalListOnly)

	// One key more than listsByScore says is read, to notice if there are more.
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
// owner named, as far as this store has them. The writes may be committed in several steps. The
// entries of the list go last, so a crash may leave entries that no item counts any more; the event
// is then folded again, and removes them.
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

// forgetOwnerList records that the list of an owner no longer has an item by score: it deletes the
// row of tagItemLists and writes the row of the item. It does nothing if the list does not have the
// item by score. The caller removes the entries of the list.
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

// Regions returns the tags of the rows that are marked "region of i" in the table of keys.go. Their
// keys begin with the shard of a user or of the store, but their homes are items. It is part of
// [projections.Regional].
func (*Counters) Regions() []projections.Tag {
	return []projections.Tag{tagNamedItem, tagGlobalList, tagOwnerList, tagReactedItem}
}

// RegionHome returns the partition of the item in the key of a row of [Counters.Regions]. ok is
// false for the key of any other row, and for a key that cannot be read. It is part of
// [projections.Regional].
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

// entryPartition returns the partition of the item of an entry of a list by heat. entry is the part
// of the entry's key that follows the prefix of the list. ok is false if entry cannot be read.
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
