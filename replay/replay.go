package replay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Progress is the progress of a long piece of work. The zero value is ready for use, and a nil Progress ignores all calls. It is safe
// for concurrent use.
type Progress struct {
	done, total atomic.Uint64
	unit        atomic.Pointer[string]
	ahead       atomic.Int64
	more        atomic.Bool

	events, bytes             atomic.Uint64
	partitions, allPartitions atomic.Uint32
}

// LogSize is the size of a log, for estimates of the time to read it. Envelopes would be a bad unit: they differ too much in size.
type LogSize struct {
	// Events is the number of events of Kinds; 0 means unknown.
	Events uint64
	Kinds  events.KindSet
	// Bytes is the size of all envelopes; 0 means unknown.
	Bytes uint64
}

// Build is the progress of the build of a store: events and bytes of the log that were read for it, and how many of its partitions are
// folded.
type Build struct {
	Events        uint64 `json:"events"`
	Bytes         uint64 `json:"bytes"`
	Partitions    uint32 `json:"partitions"`
	AllPartitions uint32 `json:"all_partitions"`
}

// Start begins a stage of the work. unit is "envelopes", "rows" or "bytes", and total the amount in this unit; 0 means unknown. The
// stage begins at zero, and no stage is known to follow it.
func (p *Progress) Start(unit string, total uint64) {
	if p == nil {
		return
	}
	p.unit.Store(&unit)
	p.done.Store(0)
	p.total.Store(total)
	p.ahead.Store(0)
}

// Unknown stands for a time that cannot be estimated.
const Unknown time.Duration = -1

// Ahead notes how long the later stages take; [Unknown] is allowed.
func (p *Progress) Ahead(d time.Duration) {
	if p != nil {
		p.ahead.Store(int64(d))
	}
}

// More notes whether further stages follow for which there is no estimate.
func (p *Progress) More(more bool) {
	if p != nil {
		p.more.Store(more)
	}
}

// Left returns how long the later stages take, or [Unknown].
func (p *Progress) Left() time.Duration {
	if p == nil || p.more.Load() {
		return Unknown
	}
	return time.Duration(p.ahead.Load())
}

// StartBuild notes the begin of the build of a store with this many partitions.
func (p *Progress) StartBuild(partitions int) {
	if p == nil {
		return
	}
	p.events.Store(0)
	p.bytes.Store(0)
	p.partitions.Store(0)
	p.allPartitions.Store(uint32(partitions))
}

// Read adds to the events and bytes of the log that the build has read.
func (p *Progress) Read(events, bytes int) {
	if p != nil {
		p.events.Add(uint64(events))
		p.bytes.Add(uint64(bytes))
	}
}

// Folded notes that the build has folded one more partition.
func (p *Progress) Folded() {
	if p != nil {
		p.partitions.Add(1)
	}
}

// Build returns the progress of the build; zero means there is none.
func (p *Progress) Build() Build {
	if p == nil {
		return Build{}
	}
	return Build{p.events.Load(), p.bytes.Load(), p.partitions.Load(), p.allPartitions.Load()}
}

// Add adds n units to the work that is done.
func (p *Progress) Add(n uint64) {
	if p != nil {
		p.done.Add(n)
	}
}

// Set sets the number of units that are done.
func (p *Progress) Set(done uint64) {
	if p != nil {
		p.done.Store(done)
	}
}

// Total corrects the number of units in all.
func (p *Progress) Total(total uint64) {
	if p != nil {
		p.total.Store(total)
	}
}

// Now returns the unit of the stage, how much is done, and how much there is in all; a total of 0 means unknown.
func (p *Progress) Now() (unit string, done, total uint64) {
	if p == nil {
		return "", 0, 0
	}
	if u := p.unit.Load(); u != nil {
		unit = *u
	}
	return unit, p.done.Load(), p.total.Load()
}

// Pace limits long work to a share of one core's time, so that it does not slow down the service beside it. The zero value is no limit.
type Pace struct {
	// Share is the part of the time that the work may take, above 0 and up to 1; 0 means all of it.
	Share float64
}

// Pause returns how long the work must rest after a piece that took this long.
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
