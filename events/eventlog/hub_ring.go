package eventlog

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/skein-feed/skein/events"
)

// ring holds the newest decoded envelopes, in the order of the log.
type ring struct {
	// base is the cursor before the oldest envelope.
	base events.Cursor
	envs []*events.Envelope
	// sums[i] is the cost of all envelopes that were ever pushed, up to and including envs[i]. The
	// difference of two sums is the cost of the envelopes between them.
	sums []int
	// droppedCost is the cost of all envelopes that were dropped.
	droppedCost int
}

// memoryCost estimates the memory of an envelope in bytes: its events, and the encoded text that
// their strings point into.
func memoryCost(e *events.Envelope) int {
	return int(unsafe.Sizeof(*e)) + len(e.Events)*int(unsafe.Sizeof(events.Event{})) + e.Bytes +
		len(e.Rejects)*(int(unsafe.Sizeof(events.Reject{}))+events.MaxRejectData)
}

// end returns the cursor after the newest envelope.
func (r *ring) end() events.Cursor {
	if n := len(r.envs); n > 0 {
		return r.envs[n-1].Cursor
	}
	return r.base
}

// indexAfter returns the index of the first envelope after the sequence.
func (r *ring) indexAfter(seq uint64) int {
	return sort.Search(len(r.envs), func(i int) bool { return r.envs[i].Cursor.Seq > seq })
}

// holds reports whether a reader at the cursor can continue with the ring: the ring has the
// envelope at the cursor, and the envelope agrees with the cursor.
func (r *ring) holds(c events.Cursor) bool {
	if c.Seq == r.base.Seq {
		return c.AgreesWith(r.base)
	}
	i := r.indexAfter(c.Seq)
	return i > 0 && c.AgreesWith(r.envs[i-1].Cursor)
}

// envelopesAfter returns the envelopes after the sequence: at least one if there are any, and
// together at most maxBytes unless the first one is larger.
func (r *ring) envelopesAfter(seq uint64, maxBytes int) []*events.Envelope {
	from := r.indexAfter(seq)
	to := from
	bytes := 0
	for to < len(r.envs) && (to == from || bytes+r.envs[to].Bytes <= maxBytes) {
		bytes += r.envs[to].Bytes
		to++
	}
	return slices.Clone(r.envs[from:to]) // push clears entries of the slice
}

// envelope returns the envelope with the sequence, or nil.
func (r *ring) envelope(seq uint64) *events.Envelope {
	if i := r.indexAfter(seq); i > 0 && r.envs[i-1].Seq() == seq {
		return r.envs[i-1]
	}
	return nil
}

// bytesAfter returns the cost of the envelopes after the sequence.
func (r *ring) bytesAfter(seq uint64) int {
	if len(r.envs) == 0 {
		return 0
	}
	total := r.sums[len(r.sums)-1]
	if i := r.indexAfter(seq); i > 0 {
		return total - r.sums[i-1]
	}
	return total - r.droppedCost
}

// push appends envelopes, and then drops the oldest until the cost is at most bound. The newest
// envelope always stays, because otherwise an envelope larger than the bound would never reach the
// subscribers.
func (r *ring) push(envs []*events.Envelope, bound int) {
	total := r.droppedCost
	if n := len(r.sums); n > 0 {
		total = r.sums[n-1]
	}
	for _, e := range envs {
		total += memoryCost(e)
		r.envs = append(r.envs, e)
		r.sums = append(r.sums, total)
	}

	drop := 0 // how many envelopes to drop
	droppedCost := r.droppedCost
	for drop < len(r.envs)-1 && total-droppedCost > bound {
		droppedCost = r.sums[drop]
		drop++
	}
	if drop > 0 {
		r.base = r.envs[drop-1].Cursor
		r.droppedCost = droppedCost
		clear(r.envs[:drop]) // so that the dropped envelopes can be collected
		r.envs = r.envs[drop:]
		r.sums = r.sums[drop:]
	}
}
