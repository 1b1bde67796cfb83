package projections

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// BatchHost has the methods of a store that its batch calls.
type BatchHost interface {
	// CommitStep commits the writes of a part of an event. Together with them it commits the place
	// of the event, which is the sequence number of its envelope and its slot, and the number of
	// the step, counted from 1.
	CommitStep(seq uint64, slot uint16, step uint32) error
	// BackfillsClosed implements [Batch.BackfillsClosed].
	BackfillsClosed() bool
	// NextVersion implements [Batch.Version].
	NextVersion() uint64
}

// BatchOptions are the options of a batch.
type BatchOptions struct {
	// Holding says which partitions the store holds, and so which rows the fold may write.
	Holding *Holding
	// Merges is true if the projection has a merger.
	Merges bool
	// StepBytes is how many bytes of rows make [Batch.Step] commit.
	StepBytes int
	// QueryCache is the query cache of the store. It is nil if the projection has none.
	QueryCache QueryCache
}

// BatchControl is a [Batch] with the methods that only the store may call. A fold gets only the
// embedded Batch.
type BatchControl struct{ Batch }

// Init sets the host and the options. The caller must also initialize [BatchControl.Rows].
func (c *BatchControl) Init(host BatchHost, opts BatchOptions) {
	c.host = host
	c.opts = opts
}

// Release closes all iterators over the rows of the store, including those that a fold has left
// open. It must be called before Pebble is closed, which panics if an iterator is still open.
func (c *BatchControl) Release() {
	c.scans.CloseOpen()
	c.rows.Close()
}

// Rows returns the overlay with the writes since the last commit, which reads through to the rows
// of the store.
func (c *BatchControl) Rows() *overlay.Overlay { return &c.rows }

// SetRow writes a row without the checks of [Batch.Set]. The store writes its own rows, such as the
// checkpoint, with it.
func (c *BatchControl) SetRow(key, value []byte) { c.rows.Set(key, value) }

// BeginLog sets the log to which the next envelopes belong.
func (c *BatchControl) BeginLog(log events.LogID) { c.log = log }

// BeginEnvelope sets the sequence number of the envelope that is folded next, and the time at which
// the log received its last event.
func (c *BatchControl) BeginEnvelope(seq uint64, logTime events.Micros) {
	c.seq = seq
	c.logTime = logTime
}

// BeginEvent sets the slot of the event that is folded next. step is how many steps of this event
// were committed before a crash interrupted it; 0 means none, or no crash.
func (c *BatchControl) BeginEvent(slot uint16, step uint32) {
	c.slot = slot
	c.step = step
}

// EndEvent returns the first misuse of the batch by the fold, such as an iterator that is still
// open.
func (c *BatchControl) EndEvent() error {
	if c.scans.Open() > 0 {
		c.recordMisuse(errOpenScan)
	}
	return c.err
}

// FirstMisuse returns the first misuse of the batch so far.
func (c *BatchControl) FirstMisuse() error { return c.err }
