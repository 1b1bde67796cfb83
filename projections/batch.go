package projections

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// Batch is all that a fold sees of its store: it reads rows, its own writes included, and writes them. It belongs to one goroutine.
type Batch struct {
	host BatchHost
	opts BatchOptions
	// rows are what was written since the last commit, over the rows of the store.
	rows overlay.Overlay
	// scans makes the iterators.
	scans overlay.Scans
	// err is the first misuse of the batch by the fold. It fails the event, because methods that write return no error.
	err error

	// The event that is being folded.
	seq  uint64
	slot uint16
	step uint32
	log  events.LogID
	// logTime is the log time of the last event of its envelope.
	logTime events.Micros

	keyedHashLog events.LogID
	keyedHash    events.KeyedHash
}

var _ Reader = (*Batch)(nil)

// Errors of folds.
var (
	errWriteInScan = errors.New("projections: a row was written while an iterator was open")
	errOpenScan    = errors.New("projections: an iterator was not closed")
	errTooLarge    = errors.New("projections: a fold writes too much between two steps")
	errReservedKey = errors.New("projections: a fold wrote to a key without shard and tag, or with a tag of the runtime")
	errNoMerger    = errors.New("projections: a fold merges without having a merger")
	errNotHeld     = errors.New("projections: a fold wrote a row of a home that is not held")
	errRange       = errors.New("projections: a fold deletes a range that is none, or that has rows of several tags")
)

// Get returns the value of a key, written before or in this batch. It may be kept only until the next call.
func (b *Batch) Get(key []byte) (value []byte, ok bool, err error) { return b.rows.Get(key) }

// Iter returns an iterator over the keys k with lower <= k < upper, written before or in this batch. Nothing may be
// written before it is closed.
func (b *Batch) Iter(lower, upper []byte) Iterator {
	return b.rows.Iter(lower, upper, &b.scans)
}

// Set writes a row. Key and value are copied.
func (b *Batch) Set(key, value []byte) {
	if b.checkWritable(key) {
		b.rows.Set(key, value)
	}
}

// Delete removes a row, if there is one.
func (b *Batch) Delete(key []byte) {
	if b.checkWritable(key) {
		b.rows.Delete(key)
	}
}

// Merge merges a value into a row with the projection's merger. The row is not read, and need not exist. Key and value are copied.
func (b *Batch) Merge(key, value []byte) {
	if !b.opts.Merges {
		b.fail(errNoMerger)
		return
	}
	if b.checkWritable(key) {
		b.rows.Merge(key, value)
	}
}

// DeleteRange removes the rows with lower <= k < upper, which must be of one tag and, if a month stands first, of one
// such. It costs the same however many they are: their space comes back with the next compactions, of whole files at
// once where the range covers them.
func (b *Batch) DeleteRange(lower, upper []byte) {
	if bytes.Compare(lower, upper) >= 0 || len(lower) < PrefixLen || len(upper) < PrefixLen ||
		!bytes.Equal(lower[:PrefixLen], upper[:PrefixLen]) && !bytes.Equal(upper, PrefixEnd(lower[:PrefixLen])) {
		b.fail(fmt.Errorf("%w: %x to %x", errRange, lower, upper))
		return
	}
	if b.checkWritable(lower) {
		b.rows.DeleteRange(lower, upper)
	}
}

func (b *Batch) checkWritable(key []byte) bool {
	switch {
	case b.scans.Open() > 0:
		b.fail(errWriteInScan)
	case len(key) < 3 || Tag(key[2]) <= LastRuntimeTag:
		b.fail(fmt.Errorf("%w: %x", errReservedKey, key))
	case b.rows.Full():
		b.fail(errTooLarge)
	case !b.opts.Holding.MayWrite(key):
		b.fail(fmt.Errorf("%w: %x", errNotHeld, key))
	default:
		return true
	}
	return false
}

func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Holds reports whether the store has the partition of a user or item. A fold writes no rows of other partitions (I13).
func (b *Batch) Holds(id string) bool { return b.opts.Holding.Has(id) }

// EachPartition calls do with every partition that is held, in ascending order, until it returns an error.
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

// Step is called by the fold of a large event wherever it may be interrupted: where Apply, if it ran again from the start, would find what
// is done and continue. If the batch is large, Step commits it, with the position and a step number, and empties it. No iterator may be
// open. The fold must return the error.
func (b *Batch) Step() error {
	if b.scans.Open() > 0 {
		b.fail(errOpenScan)
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

// BackfillsClosed reports whether every later backfill of every source will be rejected: then nothing need be
// remembered for the sake of backfills.
func (b *Batch) BackfillsClosed() bool { return b.host.BackfillsClosed() }

// LogTime returns the log time at the end of the envelope that is being folded: of a live event about its own time, of a
// backfill the time when it came.
func (b *Batch) LogTime() events.Micros { return b.logTime }

// KeyedHash returns a hash of an id under a key that depends on the id of the log alone: it does not give the id away,
// and two builds agree on it.
func (b *Batch) KeyedHash(id string) [16]byte {
	if b.keyedHashLog != b.log || b.keyedHash == (events.KeyedHash{}) {
		b.keyedHashLog, b.keyedHash = b.log, events.NewKeyedHash(b.log)
	}
	return b.keyedHash.HashID(id)
}

// QueryCache returns what is kept beside the store; nil means nothing.
func (b *Batch) QueryCache() QueryCache { return b.opts.QueryCache }

// Version is that of the first view that will show what is written now: everything that was written before has been shown, or
// will be by the same view. A fold that continues while an earlier commit is still to be shown must not say this.
func (b *Batch) Version() uint64 { return b.host.NextVersion() }
