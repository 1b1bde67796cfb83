package replay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Progress is how far a piece of long work is. The zero value is ready; a nil one takes everything and keeps nothing. It is
// safe for concurrent use.
type Progress struct {
	done, total atomic.Uint64
	unit        atomic.Pointer[string]
	ahead       atomic.Int64
	more        atomic.Bool

	events, bytes             atomic.Uint64
	partitions, allPartitions atomic.Uint32
}

// LogSize is how much there is to read of a log, for the time that it takes: envelopes differ too much in size.
type LogSize struct {
	// Events are those of Kinds; 0 means not known.
	Events uint64
	Kinds  events.KindSet
	// Bytes are those of all envelopes; 0 means not known.
	Bytes uint64
}

// Build is how far the build of a store is: events and bytes of the log that were read for it, and how many of its partitions are
// folded.
type Build struct {
	Events        uint64 `json:"events"`
	Bytes         uint64 `json:"bytes"`
	Partitions    uint32 `json:"partitions"`
	AllPartitions uint32 `json:"all_partitions"`
}

// Start names the unit of a stage of the work, "envelopes", "rows" or "bytes", and how much there is in all, as far as known; 0 means
// unknown. What was done before counts no more, and nothing is known to come after it.
func (p *Progress) Start(unit string, total uint64) {
	if p == nil {
		return
	}
	p.unit.Store(&unit)
	p.done.Store(0)
	p.total.Store(total)
	p.ahead.Store(0)
}

// Unknown is the time that work takes of which nothing is known.
const Unknown time.Duration = -1

// Ahead notes how long the stages take that come after this one; [Unknown] is allowed.
func (p *Progress) Ahead(d time.Duration) {
	if p != nil {
		p.ahead.Store(int64(d))
	}
}

// More notes whether, after these stages, others follow of which nothing is known.
func (p *Progress) More(more bool) {
	if p != nil {
		p.more.Store(more)
	}
}

// Left returns how long the stages after this one take, or [Unknown].
func (p *Progress) Left() time.Duration {
	if p == nil || p.more.Load() {
		return Unknown
	}
	return time.Duration(p.ahead.Load())
}

// StartBuild notes that the build of a store of so many partitions begins.
func (p *Progress) StartBuild(partitions int) {
	if p == nil {
		return
	}
	p.events.Store(0)
	p.bytes.Store(0)
	p.partitions.Store(0)
	p.allPartitions.Store(uint32(partitions))
}

// Read notes that so many more events and bytes of the log were read.
func (p *Progress) Read(events, bytes int) {
	if p != nil {
		p.events.Add(uint64(events))
		p.bytes.Add(uint64(bytes))
	}
}

// Folded notes that one more partition is folded.
func (p *Progress) Folded() {
	if p != nil {
		p.partitions.Add(1)
	}
}

// Build returns how far a build is; zero means there is none.
func (p *Progress) Build() Build {
	if p == nil {
		return Build{}
	}
	return Build{p.events.Load(), p.bytes.Load(), p.partitions.Load(), p.allPartitions.Load()}
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
