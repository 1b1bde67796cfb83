package overlay

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// unflushed knows which rows may be in memtables, so that a lookup of any other asks the tables alone, whose filters know
// most rows that are not there. A search in a memtable that does not find its row costs more than all else of a fold: its
// nodes are all over the memory, and nearly every edge is looked up once before it is there.
//
// Invariant: of every key that was written or deleted since the flush that ended last had begun, lacks says no.
type unflushed struct {
	// asked are the tags that were ever looked up. Rows of others, as those of lists, would only fill the filters.
	asked [256]bool
	// now is what was written since the last flush was begun, before what was written before that and may not be flushed yet.
	now, before writtenKeys
	// tables finds rows that are flushed. It is closed when a flush ends, before that flush is forgotten here.
	tables tableFinder
}

// unflushedBytes is the size of the two filters together. They hold as many keys as half of it has bytes.
const unflushedBytes = 2 << 20

// writtenKeys are keys that were written in some time.
type writtenKeys struct {
	filter blockFilter
	keys   int
	// unknown are tags of which rows were written that the filter does not know; all: of every tag.
	unknown [256]bool
	all     bool
}

// wrote adds a key whose row is written or deleted.
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

// wroteRange notes that rows are deleted that nobody has named.
func (u *unflushed) wroteRange(r keyRange) {
	if prefix := r.lower[:PrefixLen]; bytes.HasPrefix(r.upper, prefix) || bytes.Equal(r.upper, PrefixEnd(prefix)) {
		u.now.unknown[prefix[2]] = true
	} else {
		u.now.all = true
	}
}

// wroteAll notes that rows were written that nobody has named.
func (u *unflushed) wroteAll() { u.now.all = true }

// full reports that a flush would make the filters useful again.
func (u *unflushed) full() bool { return u.now.keys > unflushedBytes/4 }

// begun notes that all that was written is being flushed.
func (u *unflushed) begun() {
	u.now, u.before = u.before, u.now
	if u.now.empty() {
		return
	}
	// The flush before is under way still.
	u.before.merge(&u.now)
	u.now.clear()
}

// ended notes that what was written before the last flush was begun is in tables.
func (u *unflushed) ended() {
	u.tables.Close()
	u.before.clear()
}

// lacks reports whether no memtable has a row of a key, or its deletion.
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

// tableFinder finds single rows in tables, and in no memtable.
type tableFinder struct{ Finder }

func (f *tableFinder) find(db *pebble.DB, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = db.NewIter(&pebble.IterOptions{UseL6Filters: true, OnlyReadGuaranteedDurable: true}); err != nil {
			return nil, false, err
		}
	}
	return f.Find(db, key)
}
