package replay

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Phase is a step of an operation.
type Phase string

// The phases of operations. An operation has some of them, one after the other.
const (
	// Reading reads the log, its archive or a store.
	Reading Phase = "reading"
	// Folding applies the events that were read.
	Folding Phase = "folding"
	// Writing writes the tables of a store, or files of a snapshot or archive.
	Writing Phase = "writing"
	// CatchingUp folds what the log got meanwhile.
	CatchingUp Phase = "catching up"
	// Comparing compares two stores row by row.
	Comparing Phase = "comparing"
	// Checking reads files, and publishes and changes nothing.
	Checking Phase = "checking"
	// Publishing publishes events. Only imports do, which are not operations of the service.
	Publishing Phase = "publishing"
)

// PhaseProgress is how far an operation is in its present phase.
type PhaseProgress struct {
	Phase Phase `json:"phase,omitempty"`
	// Unit is the unit of Done and Total: "envelopes", "events", "rows" or "bytes".
	Unit string `json:"unit,omitempty"`
	Done uint64 `json:"done,omitempty"`
	// Total is how much there is to do in this phase, as far as known; 0 means unknown.
	Total uint64 `json:"total,omitempty"`
}

// Progress is the progress of an operation while it runs. The zero value is ready for use, and a nil Progress ignores all calls. It is
// safe for concurrent use.
type Progress struct {
	mu sync.Mutex
	at PhaseProgress
	// afterPhase is the estimated time for the phases after the present one.
	afterPhase time.Duration
	// more reports that phases follow for which there is no estimate.
	more bool
}

// LogSize is the size of a log, for estimates of the time to read it. Envelopes would be a bad unit: they differ too much in size.
type LogSize struct {
	// Events is the number of events of Kinds; 0 means unknown.
	Events uint64
	Kinds  events.KindSet
	// Bytes is the size of all envelopes; 0 means unknown.
	Bytes uint64
}

// StartPhase begins a phase, of which this amount is to be done, in this unit; 0 means unknown. The phase begins at zero, and no phase is
// known to follow it.
func (p *Progress) StartPhase(phase Phase, unit string, total uint64) {
	p.update(func() {
		p.at = PhaseProgress{Phase: phase, Unit: unit, Total: total}
		p.afterPhase = 0
	})
}

// update changes the progress, if there is one.
func (p *Progress) update(change func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Unknown stands for a time that cannot be estimated.
const Unknown time.Duration = -1

// SetAfterPhase notes how long the later phases take; [Unknown] is allowed.
func (p *Progress) SetAfterPhase(d time.Duration) { p.update(func() { p.afterPhase = d }) }

// SetMore notes whether further phases follow for which there is no estimate.
func (p *Progress) SetMore(more bool) { p.update(func() { p.more = more }) }

// AfterPhase returns how long the later phases take, or [Unknown].
func (p *Progress) AfterPhase() (d time.Duration) {
	d = Unknown
	p.update(func() {
		if !p.more {
			d = p.afterPhase
		}
	})
	return d
}

// Add adds n units to what is done.
func (p *Progress) Add(n uint64) { p.update(func() { p.at.Done += n }) }

// SetDone sets the number of units that are done.
func (p *Progress) SetDone(done uint64) { p.update(func() { p.at.Done = done }) }

// SetTotal corrects the number of units in all.
func (p *Progress) SetTotal(total uint64) { p.update(func() { p.at.Total = total }) }

// Now returns the present phase, and how much of it is done.
func (p *Progress) Now() (at PhaseProgress) {
	p.update(func() { at = p.at })
	return at
}

// Pace limits an operation to a share of one core's time, so that it does not slow down the service beside it. The zero value is no limit.
type Pace struct {
	// Share is the part of the time that the operation may take, above 0 and up to 1; 0 means all of it.
	Share float64
}

// Pause returns how long the operation must rest after a piece that took this long.
func (p Pace) Pause(worked time.Duration) time.Duration {
	if p.Share <= 0 || p.Share >= 1 || worked <= 0 {
		return 0
	}
	return time.Duration(float64(worked) * (1/p.Share - 1))
}

// Rest waits for the pause after a piece of work that took this long. It returns the error of the context if that ends first.
func (p Pace) Rest(ctx context.Context, worked time.Duration) error {
	return wait.For(ctx, p.Pause(worked))
}
