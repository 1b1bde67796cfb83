package overlay

import (
	"bytes"
	"slices"
	"sort"
)

// order finds the dirty rows of one shard and tag in the order of their keys. Before a walk, the rows that were written since the last
// walk are appended to the chains of their orders; then the chain of the walked order is sorted into a run. A new run is merged with
// the one before it while it is at least half as long. So there are few runs, and a row is moved a number of times that is logarithmic
// in the number of rows, however walks and writes alternate.
type order struct {
	// chain is 1 + the index of the last row that is in no run; cell.next leads to the rows before it. 0 means there is none.
	chain uint32
	runs  [][]uint32
}

// sort moves the rows of the chain into a run.
func (r *order) sort(o *Overlay) {
	if r.chain == 0 {
		return
	}
	var tail []uint32
	for next := r.chain; next != 0; next = o.rows[next-1].next {
		tail = append(tail, next-1)
	}
	r.chain = 0
	slices.SortFunc(tail, o.compareRows)
	for n := len(r.runs); n > 0 && 2*len(tail) >= len(r.runs[n-1]); n-- {
		tail = o.mergeRuns(r.runs[n-1], tail)
		r.runs = r.runs[:n-1]
	}
	r.runs = append(r.runs, tail)
}

func (o *Overlay) compareRows(a, b uint32) int {
	return bytes.Compare(o.keyOf(&o.rows[a]), o.keyOf(&o.rows[b]))
}

func (o *Overlay) mergeRuns(a, b []uint32) []uint32 {
	merged := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if o.compareRows(a[0], b[0]) < 0 {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// chain appends the rows that were written since the last walk to their chains.
func (o *Overlay) chain() {
	for _, row := range o.dirty[o.ordered:] {
		r := &o.rows[row]
		prefix := [PrefixLen]byte(o.keyOf(r))
		in := o.orders[prefix]
		r.next, in.chain = in.chain, row+1
		o.orders[prefix] = in
	}
	o.ordered = len(o.dirty)
}

// within returns the dirty rows with lower <= key < upper, in the order of their keys. A range within one shard and tag uses its order; a
// wider one sorts the dirty rows, which only walks over a whole store need.
func (o *Overlay) within(lower, upper []byte) (found []dirtyRow) {
	if upper == nil || len(lower) < PrefixLen || bytes.Compare(upper, PrefixEnd(lower[:PrefixLen])) > 0 {
		found = make([]dirtyRow, 0, len(o.dirty))
		for _, row := range o.dirty {
			if key := o.keyOf(&o.rows[row]); bytes.Compare(key, lower) >= 0 && (upper == nil || bytes.Compare(key, upper) < 0) {
				found = append(found, o.dirtyRow(row))
			}
		}
		return o.sortMany(found)
	}
	o.chain()
	prefix := [PrefixLen]byte(lower)
	r := o.orders[prefix]
	if r.chain != 0 {
		r.sort(o)
		o.orders[prefix] = r
	}
	parts := 0
	for _, run := range r.runs {
		from := o.search(run, lower)
		to := from + o.search(run[from:], upper)
		for _, row := range run[from:to] {
			found = append(found, o.dirtyRow(row))
		}
		if from < to {
			parts++
		}
	}
	if parts > 1 {
		o.sort(found)
	}
	return found
}

// search returns how many rows of a run are before a key.
func (o *Overlay) search(run []uint32, key []byte) int {
	return sort.Search(len(run), func(i int) bool { return bytes.Compare(o.keyOf(&o.rows[run[i]]), key) >= 0 })
}

// sortMany sorts rows of many shards: first a counting sort by shard, which takes one pass, then each shard by key.
func (o *Overlay) sortMany(rows []dirtyRow) []dirtyRow {
	const least = 1 << 12 // for fewer rows, the 65 536 counters would cost more
	if len(rows) < least {
		o.sort(rows)
		return rows
	}
	ends := make([]uint32, 1<<16) // of the rows of each shard
	for i := range rows {
		ends[rows[i].first>>48]++
	}
	sum := uint32(0)
	for shard, n := range ends {
		ends[shard] = sum // the beginning; it grows to the end while rows are placed
		sum += n
	}
	sorted := make([]dirtyRow, len(rows))
	for i := range rows {
		end := &ends[rows[i].first>>48]
		sorted[*end] = rows[i]
		*end++
	}
	from := uint32(0)
	for _, end := range ends {
		if end-from > 1 {
			o.sort(sorted[from:end])
		}
		from = end
	}
	return sorted
}
