package overlay

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// unflushed knows which rows may be in memtables. A lookup of any other row searches the tables alone, whose Bloom filters exclude most
// missing rows. A search in a memtable that misses costs more than all else in a fold: the nodes of the memtable are scattered over the
// memory, and nearly every edge is looked up once before it exists.
//
// Invariant: lacks returns false for every key that was written or deleted after the last completed flush began.
type unflushed struct {
	// asked are the tags that were ever looked up. Keys of other tags, as of lists, would only fill the filters.
	asked [256]bool
	// now has the keys that were written since the last flush began, before those that were written earlier and may not be flushed yet.
	now, before writtenKeys
	// tables finds rows that are flushed. Its iterator is closed when a flush ends, before the keys of that flush are dropped: an older
	// iterator would miss the new tables.
	tables tableFinder
}

// unflushedBytes is the size of the two filters together. Together they are useful up to half as many keys.
const unflushedBytes = 2 << 20

// writtenKeys are the keys that were written in a period.
type writtenKeys struct {
	filter blockFilter
	keys   int
	// unknown are tags with written rows that are not in the filter; all stands for every tag.
	unknown [256]bool
	all     bool
}

// wrote adds a key whose row is written or deleted. A key of a tag that was never looked up only marks the tag.
func (u *unflushed) wrote(key []byte, hash uint64) {
	w := &u.now
	if !u.asked[key[2]] {
		w.unknown[key[2]] = true
		return
	}
	if w.filter == nil {
		w.filter = newBlockFilter(unflushedBytes / 2)
	}
	w.filter.add(hash)
	w.keys++
}

// wroteRange notes that the rows of a range are deleted. Their keys are not known, so it marks their tag, or all tags.
func (u *unflushed) wroteRange(r keyRange) {
	if prefix := r.lower[:PrefixLen]; bytes.HasPrefix(r.upper, prefix) || bytes.Equal(r.upper, PrefixEnd(prefix)) {
		u.now.unknown[prefix[2]] = true
	} else {
		u.now.all = true
	}
}

// wroteAll notes that rows of any keys were written.
func (u *unflushed) wroteAll() { u.now.all = true }

// full reports whether the filters have so many keys that they exclude little, so that a flush is worth its cost.
func (u *unflushed) full() bool { return u.now.keys > unflushedBytes/4 }

// begun notes that a flush of everything written so far has begun.
func (u *unflushed) begun() {
	u.now, u.before = u.before, u.now
	if u.now.empty() {
		return
	}
	// The previous flush has not ended: its keys stay, beside those of this one.
	u.before.merge(&u.now)
	u.now.clear()
}

// ended notes that everything written before the last flush began is in tables.
func (u *unflushed) ended() {
	u.tables.Close()
	u.before.clear()
}

// lacks reports whether certainly no memtable has the row of a key, or its deletion.
func (u *unflushed) lacks(key []byte, hash uint64) bool {
	u.asked[key[2]] = true
	return u.now.lacks(key, hash) && u.before.lacks(key, hash)
}

func (w *writtenKeys) lacks(key []byte, hash uint64) bool {
	return !w.all && !w.unknown[key[2]] && (w.keys == 0 || w.filter.lacks(hash))
}

func (w *writtenKeys) empty() bool { return w.keys == 0 && !w.all && w.unknown == [256]bool{} }

func (w *writtenKeys) clear() {
	if w.keys > 0 {
		clear(w.filter)
	}
	*w = writtenKeys{filter: w.filter}
}

func (w *writtenKeys) merge(other *writtenKeys) {
	w.all = w.all || other.all
	for tag := range w.unknown {
		w.unknown[tag] = w.unknown[tag] || other.unknown[tag]
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

// tableFinder finds single rows in tables. It never searches memtables, which is what OnlyReadGuaranteedDurable means for Pebble.
type tableFinder struct{ Finder }

func (f *tableFinder) find(db *pebble.DB, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = db.NewIter(&pebble.IterOptions{UseL6Filters: true, OnlyReadGuaranteedDurable: true}); err != nil {
			return nil, false, err
		}
	}
	return f.Find(db, key)
}
