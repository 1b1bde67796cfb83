package projections

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// BatchHost is the store that a batch belongs to, as far as the batch calls it.
type BatchHost interface {
	// CommitStep commits what was written so far, inside of an event, with the position and the step.
	CommitStep(seq uint64, slot uint16, step uint32) error
	// BackfillsClosed reports whether every later backfill will be rejected.
	BackfillsClosed() bool
	// NextVersion returns the version of the first view that will show what is written now.
	NextVersion() uint64
}

// BatchOptions are what a store tells its batch once.
type BatchOptions struct {
	// Holding says which rows the fold may write.
	Holding *Holding
	// Merges reports whether the projection has a merger.
	Merges bool
	// StepBytes is the size from which [Batch.Step] commits.
	StepBytes int
	// QueryCache is what queries keep of the rows; nil means nothing.
	QueryCache QueryCache
}

// BatchControl is a [Batch] together with what only the store may do with it. A fold gets the Batch alone.
type BatchControl struct{ Batch }

// Init begins the batch of a store. The rows are to be initialized apart from it, see [BatchControl.Rows].
func (c *BatchControl) Init(host BatchHost, opts BatchOptions) { c.host, c.opts = host, opts }

// Release closes all iterators over the rows of the store, also those that a fold has left open. Pebble panics if it is closed before.
func (c *BatchControl) Release() {
	c.scans.CloseOpen()
	c.rows.Close()
}

// Rows returns what was written since the last commit, over the rows of the store.
func (c *BatchControl) Rows() *overlay.Overlay { return &c.rows }

// SetRow writes a row, also one of the runtime, which [Batch.Set] refuses.
func (c *BatchControl) SetRow(key, value []byte) { c.rows.Set(key, value) }

// BeginLog sets the log that the next envelopes are of.
func (c *BatchControl) BeginLog(log events.LogID) { c.log = log }

// BeginEnvelope sets the envelope that is folded next.
func (c *BatchControl) BeginEnvelope(seq uint64, logTime events.Micros) {
	c.seq, c.logTime = seq, logTime
}

// BeginEvent sets the event of the envelope that is folded next, and how many of its steps were committed before a crash.
func (c *BatchControl) BeginEvent(slot uint16, step uint32) { c.slot, c.step = slot, step }

// EndEvent returns the first misuse of the batch by the fold. An iterator that is still open is one.
func (c *BatchControl) EndEvent() error {
	if c.scans.Open() > 0 {
		c.fail(errOpenScan)
	}
	return c.err
}

// Misuse returns the first misuse of the batch so far.
func (c *BatchControl) Misuse() error { return c.err }
