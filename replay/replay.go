package replay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events/wait"
)

// Progress is how far a piece of long work is. The zero value is ready; a nil one takes everything and keeps nothing. It is
// safe for concurrent use.
type Progress struct {
	done, total atomic.Uint64
	unit        atomic.Pointer[string]
}

// Start names the unit of the work, "envelopes", "rows" or "bytes", and how much there is in all, as far as known; 0 means
// unknown. What was done before counts no more.
func (p *Progress) Start(unit string, total uint64) {
	if p == nil {
		return
	}
	p.unit.Store(&unit)
	p.done.Store(0)
	p.total.Store(total)
}

// Add notes that so many more units are done.
func (p *Progress) Add(n uint64) {
	if p != nil {
		p.done.Add(n)
	}
}

// Set notes that so many units are done in all.
func (p *Progress) Set(done uint64) {
	if p != nil {
		p.done.Store(done)
	}
}

// Total corrects how much there is in all.
func (p *Progress) Total(total uint64) {
	if p != nil {
		p.total.Store(total)
	}
}

// Now returns how far the work is.
func (p *Progress) Now() (unit string, done, total uint64) {
	if p == nil {
		return "", 0, 0
	}
	if u := p.unit.Load(); u != nil {
		unit = *u
	}
	return unit, p.done.Load(), p.total.Load()
}

// Pace keeps long work to a share of one core's time, so that what serves continues beside it. The zero value holds nothing
// back.
type Pace struct {
	// Share is the part of the time that the work may take, above 0 and up to 1; 0 means all of it.
	Share float64
}

// Pause is how long the share demands to rest after a piece of work that took so long.
func (p Pace) Pause(worked time.Duration) time.Duration {
	if p.Share <= 0 || p.Share >= 1 || worked <= 0 {
		return 0
	}
	return time.Duration(float64(worked) * (1/p.Share - 1))
}

// Rest waits for the pause after a piece of work that took so long. It returns the error of the context if that ends first.
func (p Pace) Rest(ctx context.Context, worked time.Duration) error {
	return wait.For(ctx, p.Pause(worked))
}
