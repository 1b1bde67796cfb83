package replay

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Phase is a step of an operation, such as a rebuild. An operation goes through some of the phases,
// one after the other.
type Phase string

// The phases.
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
	// Checking reads and checks files, such as those of a snapshot or an import, without changing
	// anything.
	Checking Phase = "checking"
	// Publishing publishes events. Only imports have this phase; the command line runs them.
	Publishing Phase = "publishing"
)

// PhaseProgress says how far an operation is in its current phase. Operations store it in their
// files as JSON.
type PhaseProgress struct {
	Phase Phase `json:"phase,omitempty"`
	// Unit names what Done and Total count: "envelopes", "events", "rows" or "bytes" in operations
	// of the service, and also "shards" or "keys" in commands.
	Unit string `json:"unit,omitempty"`
	// Done is how many units are done in this phase.
	Done uint64 `json:"done,omitempty"`
	// Total is how many units this phase has, those in Done included; 0 means unknown. It may be
	// corrected while the phase runs.
	Total uint64 `json:"total,omitempty"`
}

// Progress is the progress of a running operation. The operation sets it, and the manager of
// operations reads it. The zero value is ready for use. A nil Progress ignores what is set, for
// callers who show no progress. Progress is safe for concurrent use.
type Progress struct {
	mu sync.Mutex
	// current is the phase that runs now.
	current PhaseProgress
	// afterPhase is the estimated duration of all phases after the current one. It may be Unknown.
	afterPhase time.Duration
	// unestimatedPhasesFollow is true if a phase without an estimate follows. Then AfterPhase
	// returns Unknown, whatever afterPhase is.
	unestimatedPhasesFollow bool
}

// LogSize is the size of a log. It serves to estimate how long reading the log takes, which depends
// on the number of events and on their bytes. The number of envelopes would say little, because an
// envelope has between 1 and [events.MaxEnvelopeEvents] events.
type LogSize struct {
	// Events is the number of events whose kind is in Kinds; 0 means unknown.
	Events uint64
	// Kinds are the kinds of events that the operation reads.
	Kinds events.KindSet
	// Bytes is the total size of all envelopes; 0 means unknown.
	Bytes uint64
}

// StartPhase begins a phase with total units, of which none is done; a total of 0 means unknown.
// [PhaseProgress].Unit lists the units. Until SetAfterPhase is called, the phase counts as the last
// one.
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

// SetAfterPhase sets the estimated duration of all phases after the current one, or [Unknown].
func (p *Progress) SetAfterPhase(d time.Duration) {
	p.update(func() { p.afterPhase = d })
}

// SetUnestimatedPhasesFollow says whether a phase without an estimate follows. StartPhase does not
// change this setting: the setting is for callers who run an operation and then do more, of which
// the code of the operation knows nothing.
func (p *Progress) SetUnestimatedPhasesFollow(follow bool) {
	p.update(func() { p.unestimatedPhasesFollow = follow })
}

// AfterPhase returns the estimated duration of all phases after the current one, or [Unknown]. A
// nil Progress returns Unknown.
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

// Pace limits an operation to a share of one core's time, so that it does not slow down the service
// that runs at the same time. After each piece of work, the operation rests for a time in
// proportion to the duration of this work. The zero value does not limit.
type Pace struct {
	// Share is the part of the time during which the operation works, between 0 and 1. 0 and 1 do
	// not limit.
	Share float64
}

// Pause returns how long the operation must rest after a piece of work of the duration worked. With
// a Share of 0.25, the pause is three times as long as the work.
func (p Pace) Pause(worked time.Duration) time.Duration {
	if p.Share <= 0 || p.Share >= 1 || worked <= 0 {
		return 0
	}
	return time.Duration(float64(worked) * (1/p.Share - 1))
}

// Rest sleeps for the duration that [Pace.Pause] returns. It returns the error of ctx if ctx ends
// first.
func (p Pace) Rest(ctx context.Context, worked time.Duration) error {
	return wait.For(ctx, p.Pause(worked))
}
