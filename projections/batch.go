package projections

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// Batch gives a fold access to the rows of its store. Reads see the writes of the batch that are
// not committed yet. A Batch is not safe for concurrent use.
type Batch struct {
	// host is the store.
	host BatchHost
	opts BatchOptions
	// rows has the writes since the last commit. It reads all other rows from the store.
	rows overlay.Overlay
	// scans makes the iterators and counts those that are open.
	scans overlay.Scans
	// eraseScratch is memory that EraseRows reuses.
	eraseScratch eraseScratch
	// err is the first misuse of the batch by the fold. The methods that write return no error, so
	// they record the misuse here, and Step or the end of the event fails with it.
	err error

	// log, the sequence number of the envelope, and the slot in the envelope identify the event
	// that is being folded. step is the number of commits within this event so far.
	log  events.LogID
	seq  uint64
	slot uint16
	step uint32
	// logTime is the time at which the log received the last event of the envelope.
	logTime events.Micros

	// keyedHash is the hash of the log keyedHashLog. KeyedHash sets both at its first call for a
	// log.
	keyedHashLog events.LogID
	keyedHash    events.KeyedHash
}

var _ Reader = (*Batch)(nil)

// Misuses of a batch by a fold. They stop the projection.
var (
	errWriteInScan = errors.New("projections: a row was written while an iterator was open")
	errOpenScan    = errors.New("projections: an iterator was not closed")
	errTooLarge    = errors.New("projections: a fold writes too much between two steps")
	errReservedKey = errors.New("projections: a fold wrote a key without shard and tag, or with a tag that only the store may use")
	errNoMerger    = errors.New("projections: a fold called Merge, but its projection has no merger")
	errNotHeld     = errors.New("projections: a fold wrote a row of a partition that the store does not hold")
	errRange       = errors.New("projections: a fold deleted a range that is empty, or that is not within one shard and tag")
)

// Get implements [Reader].
func (b *Batch) Get(key []byte) (value []byte, ok bool, err error) { return b.rows.Get(key) }

// Iter implements [Reader].
func (b *Batch) Iter(lower, upper []byte) Iterator {
	return b.rows.Iter(lower, upper, &b.scans)
}

// Set writes a row. The batch copies key and value.
func (b *Batch) Set(key, value []byte) {
	if b.checkWritable(key) {
		b.rows.Set(key, value)
	}
}

// Delete removes a row. It does nothing if there is no such row.
func (b *Batch) Delete(key []byte) {
	if b.checkWritable(key) {
		b.rows.Delete(key)
	}
}

// Merge merges a value into a row with the merger of the projection. It does not read the row,
// which need not exist. The batch copies key and value.
func (b *Batch) Merge(key, value []byte) {
	if !b.opts.Merges {
		b.recordMisuse(errNoMerger)
		return
	}
	if b.checkWritable(key) {
		b.rows.Merge(key, value)
	}
}

// DeleteRange removes the rows whose keys k have lower <= k < upper. Their keys must begin with the
// same [PrefixLen] bytes: one shard and tag or, for a [MonthKeyed] projection, one month and tag.
// The cost does not depend on the number of rows. Compactions free the disk space later.
func (b *Batch) DeleteRange(lower, upper []byte) {
	if bytes.Compare(lower, upper) >= 0 || len(lower) < PrefixLen || len(upper) < PrefixLen ||
		!bytes.Equal(lower[:PrefixLen], upper[:PrefixLen]) && !bytes.Equal(upper, PrefixEnd(lower[:PrefixLen])) {
		b.recordMisuse(fmt.Errorf("%w: %x to %x", errRange, lower, upper))
		return
	}
	if b.checkWritable(lower) {
		b.rows.DeleteRange(lower, upper)
	}
}

// checkWritable reports whether the fold may write a row now. If it may not, checkWritable records
// the misuse.
func (b *Batch) checkWritable(key []byte) bool {
	switch {
	case b.scans.Open() > 0:
		b.recordMisuse(errWriteInScan)
	case len(key) < 3 || Tag(key[2]) <= LastRuntimeTag:
		b.recordMisuse(fmt.Errorf("%w: %x", errReservedKey, key))
	case b.rows.IsFull():
		b.recordMisuse(errTooLarge)
	case !b.opts.Holding.MayWrite(key):
		b.recordMisuse(fmt.Errorf("%w: %x", errNotHeld, key))
	default:
		return true
	}
	return false
}

// recordMisuse keeps the first misuse. Later ones are often consequences of it.
func (b *Batch) recordMisuse(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Holds reports whether the store holds the partition of a user or item. A fold must not write rows
// of other partitions (I13).
func (b *Batch) Holds(id string) bool { return b.opts.Holding.Has(id) }

// EachPartition calls do with every partition that the store holds, in ascending order. It stops at
// the first error and returns it.
func (b *Batch) EachPartition(do func(partition uint8) error) error {
	for p := range events.NumPartitions {
		if parts := b.opts.Holding.Held; parts != nil && !parts.Has(uint8(p)) {
			continue
		}
		if err := do(uint8(p)); err != nil {
			return err
		}
	}
	return nil
}

// Step commits the writes so far if they have reached [BatchOptions.StepBytes], so that those of a
// large event need not fit into memory. After a crash, the store calls Apply with the same event on
// the committed rows ([Projection.Apply]), so a fold may call Step only where such a second call
// continues correctly. No iterator may be open. The fold must return the error of Step.
func (b *Batch) Step() error {
	if b.scans.Open() > 0 {
		b.recordMisuse(errOpenScan)
	}
	if b.err != nil {
		return b.err
	}
	if b.rows.Size() < b.opts.StepBytes {
		return nil
	}

	b.step++
	return b.host.CommitStep(b.seq, b.slot, b.step)
}

// BackfillsClosed reports whether the store ignores all later backfills, whatever their source. A
// fold then no longer needs rows that it keeps only to order backfills.
func (b *Batch) BackfillsClosed() bool { return b.host.BackfillsClosed() }

// LogTime returns the time at which the log received the last event of the envelope that is being
// folded. The own time of a backfilled event, by contrast, may be years earlier.
func (b *Batch) LogTime() events.Micros { return b.logTime }

// KeyedHash returns a hash of an id under a key that is derived from the id of the log. The hash
// does not reveal the id, and two builds from one log agree on it.
func (b *Batch) KeyedHash(id string) [16]byte {
	// Deriving the key costs much more than hashing an id.
	if b.keyedHashLog != b.log || b.keyedHash == (events.KeyedHash{}) {
		b.keyedHashLog = b.log
		b.keyedHash = events.NewKeyedHash(b.log)
	}
	return b.keyedHash.HashID(id)
}

// QueryCache returns the query cache of the store. It is nil if the projection has none.
func (b *Batch) QueryCache() QueryCache { return b.opts.QueryCache }

// Version returns the version of the first view that will show the current writes ([View.Version]).
// Earlier writes that no view shows yet become visible with the same version.
func (b *Batch) Version() uint64 { return b.host.NextVersion() }
