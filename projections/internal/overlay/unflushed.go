package overlay

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// unflushedKeys says which rows may be in memtables. A lookup of any other row searches only the
// tables, whose Bloom filters exclude most missing rows. A search in a memtable that finds nothing
// costs more than everything else in a fold: the nodes of a memtable are scattered over the memory,
// and nearly every edge is looked up once before it exists.
//
// Invariant: excludes returns false for every key that was written or deleted after the beginning
// of the last flush that has ended.
type unflushedKeys struct {
	// lookedUpTags has the tags of which a row was ever looked up. Keys of other tags, for example
	// of lists, would only fill the filters.
	lookedUpTags [256]bool
	// sinceFlush has the keys that were written since the last flush began. beingFlushed has keys
	// that were written before and that may not be in tables yet.
	sinceFlush, beingFlushed writtenKeys
	// tables finds rows that are flushed. When a flush ends, its iterator is closed before the keys
	// of that flush are dropped, because an older iterator does not see the new tables.
	tables tableFinder
}

// unflushedBytes is the size of both filters together, in bytes. They are useful for up to half as
// many keys.
const unflushedBytes = 2 << 20

// writtenKeys has the keys that were written in a period.
type writtenKeys struct {
	filter blockFilter
	keys   int
	// unfilteredTags has the tags of written rows that are not in the filter. hasUnknownKeys is set
	// if these may be all tags.
	unfilteredTags [256]bool
	hasUnknownKeys bool
}

// recordWrite records that a row was written or deleted. If no row of the tag was ever looked up,
// it only records the tag.
func (u *unflushedKeys) recordWrite(key []byte, hash uint64) {
	w := &u.sinceFlush
	if !u.lookedUpTags[key[2]] {
		w.unfilteredTags[key[2]] = true
		return
	}
	if w.filter == nil {
		w.filter = newBlockFilter(unflushedBytes / 2)
	}
	w.filter.add(hash)
	w.keys++
}

// recordRangeDelete records that the rows of a range were deleted. Their keys are not known, so it
// records the tag, or all tags if the range spans several.
func (u *unflushedKeys) recordRangeDelete(r keyRange) {
	if prefix := r.lower[:PrefixLen]; bytes.HasPrefix(r.upper, prefix) || bytes.Equal(r.upper, PrefixEnd(prefix)) {
		u.sinceFlush.unfilteredTags[prefix[2]] = true
	} else {
		u.sinceFlush.hasUnknownKeys = true
	}
}

// recordUnknownWrites records that any rows may have been written.
func (u *unflushedKeys) recordUnknownWrites() { u.sinceFlush.hasUnknownKeys = true }

// isFull reports whether the filter has so many keys that it excludes little, so that a flush is
// worth its cost.
func (u *unflushedKeys) isFull() bool { return u.sinceFlush.keys > unflushedBytes/4 }

// flushStarted records that a flush of everything written so far has begun.
func (u *unflushedKeys) flushStarted() {
	// Swap the two instead of making a new one, because each has a filter of a megabyte.
	u.sinceFlush, u.beingFlushed = u.beingFlushed, u.sinceFlush
	if u.sinceFlush.isEmpty() {
		return
	}

	// The previous flush has not ended. Keep its keys, too.
	u.beingFlushed.merge(&u.sinceFlush)
	u.sinceFlush.clear()
}

// flushEnded records that everything that was written before the last flush began is in tables.
func (u *unflushedKeys) flushEnded() {
	u.tables.Close()
	u.beingFlushed.clear()
}

// excludes reports whether certainly no memtable has the row of a key, or its deletion. It also
// records that rows of the tag are looked up.
func (u *unflushedKeys) excludes(key []byte, hash uint64) bool {
	u.lookedUpTags[key[2]] = true
	return u.sinceFlush.excludes(key, hash) && u.beingFlushed.excludes(key, hash)
}

func (w *writtenKeys) excludes(key []byte, hash uint64) bool {
	return !w.hasUnknownKeys && !w.unfilteredTags[key[2]] && (w.keys == 0 || w.filter.excludes(hash))
}

func (w *writtenKeys) isEmpty() bool {
	return w.keys == 0 && !w.hasUnknownKeys && w.unfilteredTags == [256]bool{}
}

func (w *writtenKeys) clear() {
	if w.keys > 0 {
		clear(w.filter)
	}
	*w = writtenKeys{filter: w.filter}
}

func (w *writtenKeys) merge(other *writtenKeys) {
	w.hasUnknownKeys = w.hasUnknownKeys || other.hasUnknownKeys
	for tag := range w.unfilteredTags {
		w.unfilteredTags[tag] = w.unfilteredTags[tag] || other.unfilteredTags[tag]
	}
	if other.keys == 0 {
		return
	}
	if w.filter == nil {
		w.filter = newBlockFilter(unflushedBytes / 2)
	}
	for b := range w.filter {
		for i := range w.filter[b] {
			w.filter[b][i] |= other.filter[b][i]
		}
	}
	w.keys += other.keys
}

// tableFinder finds single rows in tables. It never searches memtables: that is what the option
// OnlyReadGuaranteedDurable of Pebble means.
type tableFinder struct{ Finder }

func (f *tableFinder) find(db *pebble.DB, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = db.NewIter(&pebble.IterOptions{UseL6Filters: true, OnlyReadGuaranteedDurable: true}); err != nil {
			return nil, false, err
		}
	}
	return f.Find(db, key)
}
