package replay

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Phase names a step of an operation, such as "reading".
type Phase string

// The phases of operations. An operation goes through some of them, one after the other.
const (
	// Reading reads the log, its archive or a store.
	Reading Phase = "reading"
	// Folding applies the events that were read.
	Folding Phase = "folding"
	// Writing writes the tables of a store, or files of a snapshot or archive.
	Writing Phase = "writing"
	// CatchingUp folds the events that the log has received since the operation began.
	CatchingUp Phase = "catching up"
	// Comparing compares two stores row by row.
	Comparing Phase = "comparing"
	// Checking reads files. It neither publishes nor changes anything.
	Checking Phase = "checking"
	// Publishing publishes events. Only imports do, which are not operations of the service.
	Publishing Phase = "publishing"
)

// PhaseProgress says how far an operation is in its current phase. Operations store it in their files as JSON.
type PhaseProgress struct {
	Phase Phase `json:"phase,omitempty"`
	// Unit is the unit of Done and Total: "envelopes", "events", "rows" or "bytes".
	Unit string `json:"unit,omitempty"`
	Done uint64 `json:"done,omitempty"`
	// Total is how many units there are to do in this phase; 0 means unknown. It may be corrected while the phase runs.
	Total uint64 `json:"total,omitempty"`
}

// Progress is the progress of a running operation. The operation sets it, and the manager of operations reads it. The zero value is ready
// for use. A nil Progress ignores all calls. Progress is safe for concurrent use.
type Progress struct {
	mu sync.Mutex
	// current is the phase that runs now.
	current PhaseProgress
	// afterPhase is the estimated duration of all phases after the current one. It may be Unknown.
	afterPhase time.Duration
	// unestimatedPhasesFollow is set if some of the phases after the current one have no estimate. afterPhase does not count then.
	unestimatedPhasesFollow bool
}

// LogSize is the size of a log. It serves to estimate how long reading the log takes, which depends on the number of events and on their
// bytes. The number of envelopes would say little, because an envelope holds between one event and thousands of them.
type LogSize struct {
	// Events is the number of events whose kind is in Kinds; 0 means unknown.
	Events uint64
	Kinds  events.KindSet
	// Bytes is the total size of all envelopes; 0 means unknown.
	Bytes uint64
}

// StartPhase begins a phase in which total units are to be done; a total of 0 means unknown. unit is one of the units that
// [PhaseProgress].Unit lists. Nothing is done yet, and until SetAfterPhase is called the phase counts as the last one.
func (p *Progress) StartPhase(phase Phase, unit string, total uint64) {
	p.update(func() {
		p.current = PhaseProgress{Phase: phase, Unit: unit, Total: total}
		p.afterPhase = 0
	})
}

// update calls change with the lock held. If p is nil, update does nothing.
func (p *Progress) update(change func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Unknown stands for a duration that cannot be estimated.
const Unknown time.Duration = -1

// SetAfterPhase sets the estimated duration of all phases after the current one; [Unknown] is allowed.
func (p *Progress) SetAfterPhase(d time.Duration) {
	p.update(func() { p.afterPhase = d })
}

// SetMore says whether phases will follow for which there is no estimate. Unlike the estimate of SetAfterPhase, the setting survives
// StartPhase: a caller sets it around an operation whose own phases know nothing of those that follow.
func (p *Progress) SetMore(more bool) {
	p.update(func() { p.unestimatedPhasesFollow = more })
}

// AfterPhase returns the estimated duration of all phases after the current one, or [Unknown]. A nil Progress returns Unknown.
func (p *Progress) AfterPhase() (d time.Duration) {
	d = Unknown
	p.update(func() {
		if !p.unestimatedPhasesFollow {
			d = p.afterPhase
		}
	})
	return d
}

// Add adds n units to those that are done in the current phase.
func (p *Progress) Add(n uint64) { p.update(func() { p.current.Done += n }) }

// SetDone sets the number of units that are done in the current phase.
func (p *Progress) SetDone(done uint64) { p.update(func() { p.current.Done = done }) }

// SetTotal corrects the number of units that there are to do in the current phase; 0 means unknown.
func (p *Progress) SetTotal(total uint64) { p.update(func() { p.current.Total = total }) }

// Now returns how far the operation is in its current phase. A nil Progress returns the zero value.
func (p *Progress) Now() (current PhaseProgress) {
	p.update(func() { current = p.current })
	return current
}

// Pace limits an operation to a share of one core's time, so that it does not slow down the service that runs at the same time. The operation
// rests after each piece of work for a time in proportion to it. The zero value does not limit.
type Pace struct {
	// Share is the share of the time of one core in which the operation may work, between 0 and 1. 0 and 1 do not limit.
	Share float64
}

// Pause returns how long the operation must rest after a piece of work that took worked. A Share of 0.25 rests three times as long.
func (p Pace) Pause(worked time.Duration) time.Duration {
	if p.Share <= 0 || p.Share >= 1 || worked <= 0 {
		return 0
	}
	return time.Duration(float64(worked) * (1/p.Share - 1))
}

// Rest sleeps for [Pace.Pause] of worked. It returns the context's error if the context ends first.
func (p Pace) Rest(ctx context.Context, worked time.Duration) error {
	return wait.For(ctx, p.Pause(worked))
}
