package overlay

import (
	"bytes"
	"slices"
	"sort"
)

// prefixOrder sorts the dirty rows of one shard and tag. Rows that are written are first linked in
// a chain. When an iterator needs the order, the chain is sorted into a run. The new run is merged
// with the run before it, repeatedly, as long as it is at least half as long as that. So there are
// few runs, and each row is moved a number of times that is logarithmic in the number of rows, even
// if iterators and writes alternate.
type prefixOrder struct {
	// lastUnsorted is 1 + the index of the row that was added to the chain last, or 0 if the chain
	// is empty. record.nextInChain leads to the rows that were added before.
	lastUnsorted uint32
	runs         [][]uint32
}

// sortChain sorts the rows of the chain into a run, which leaves the chain empty.
func (r *prefixOrder) sortChain(o *Overlay) {
	if r.lastUnsorted == 0 {
		return
	}

	var run []uint32
	for next := r.lastUnsorted; next != 0; next = o.rows[next-1].nextInChain {
		run = append(run, next-1)
	}
	r.lastUnsorted = 0
	slices.SortFunc(run, o.compareRows)

	for n := len(r.runs); n > 0 && 2*len(run) >= len(r.runs[n-1]); n-- {
		run = o.mergeRuns(r.runs[n-1], run)
		r.runs = r.runs[:n-1]
	}
	r.runs = append(r.runs, run)
}

// compareRows compares the keys of two rows.
func (o *Overlay) compareRows(a, b uint32) int {
	return bytes.Compare(o.keyOf(&o.rows[a]), o.keyOf(&o.rows[b]))
}

// mergeRuns merges two sorted runs.
func (o *Overlay) mergeRuns(a, b []uint32) []uint32 {
	merged := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if o.compareRows(a[0], b[0]) < 0 {
			merged = append(merged, a[0])
			a = a[1:]
		} else {
			merged = append(merged, b[0])
			b = b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// chainNewRows adds the rows that became dirty since the last call to the chains of their prefixes.
func (o *Overlay) chainNewRows() {
	for _, row := range o.dirty[o.chainedCount:] {
		r := &o.rows[row]
		prefix := [PrefixLen]byte(o.keyOf(r))
		order := o.orderByPrefix[prefix]
		r.nextInChain = order.lastUnsorted
		order.lastUnsorted = row + 1
		o.orderByPrefix[prefix] = order
	}
	o.chainedCount = len(o.dirty)
}

// dirtyRowsWithin returns the dirty rows with lower <= key < upper, in the order of their keys. A
// nil upper means no bound. For a range within one shard and tag it uses the prefixOrder. For a
// wider range, which only iterators over whole stores need, it sorts the rows.
func (o *Overlay) dirtyRowsWithin(lower, upper []byte) (found []dirtyRow) {
	if upper == nil || len(lower) < PrefixLen || bytes.Compare(upper, PrefixEnd(lower[:PrefixLen])) > 0 {
		found = make([]dirtyRow, 0, len(o.dirty))
		for _, row := range o.dirty {
			if o.db == nil && !o.rows[row].exists() {
				continue // there is no row below that it hides
			}
			key := o.keyOf(&o.rows[row])
			isBelowUpper := upper == nil || bytes.Compare(key, upper) < 0
			if isBelowUpper && bytes.Compare(key, lower) >= 0 {
				found = append(found, o.newDirtyRow(row))
			}
		}
		return o.sortByShard(nil, found)
	}

	o.chainNewRows()
	prefix := [PrefixLen]byte(lower)
	order := o.orderByPrefix[prefix]
	if order.lastUnsorted != 0 {
		order.sortChain(o)
		o.orderByPrefix[prefix] = order
	}

	// Each run has a part of the rows. If several have, sort the parts together.
	parts := 0
	for _, run := range order.runs {
		from := o.countBefore(run, lower)
		to := from + o.countBefore(run[from:], upper)
		for _, row := range run[from:to] {
			found = append(found, o.newDirtyRow(row))
		}
		if from < to {
			parts++
		}
	}
	if parts > 1 {
		o.sortRows(found)
	}
	return found
}

// countBefore returns how many rows of a run have a lower key.
func (o *Overlay) countBefore(run []uint32, key []byte) int {
	return sort.Search(len(run), func(i int) bool { return bytes.Compare(o.keyOf(&o.rows[run[i]]), key) >= 0 })
}

// sortByShard sorts rows of many shards and returns them in the memory of dst, which must not be
// that of rows, or in rows. A counting sort by the first bits of the shard, which passes over the
// rows twice, leaves few rows to be compared with each other.
func (o *Overlay) sortByShard(dst, rows []dirtyRow) []dirtyRow {
	const (
		minRows    = 1 << 10 // for fewer rows, the counters cost more than they save
		bucketBits = 12      // the counters of more bits would displace the rows from the processor's first cache
	)
	if len(rows) < minRows {
		o.sortRows(rows)
		return rows
	}

	// Count the rows of each bucket.
	var ends [1 << bucketBits]uint32
	for i := range rows {
		ends[rows[i].first>>(64-bucketBits)]++
	}

	// Change each count to the index where the rows of the bucket begin. While rows are placed, it
	// grows to the index where they end.
	sum := uint32(0)
	for bucket, n := range ends[:] {
		ends[bucket] = sum
		sum += n
	}
	sorted := slices.Grow(dst[:0], len(rows))[:len(rows)]
	for i := range rows {
		end := &ends[rows[i].first>>(64-bucketBits)]
		sorted[*end] = rows[i]
		*end++
	}

	// Sort the rows of each bucket.
	from := uint32(0)
	for _, end := range ends[:] {
		if end-from > 1 {
			o.sortRows(sorted[from:end])
		}
		from = end
	}
	return sorted
}
