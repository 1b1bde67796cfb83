package build

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// Handover describes a build to which all events were added, so that another process can finish it.
// It refers to the temporary files of the build, which exist until the Builder that made them is
// closed.
type Handover struct {
	// Projection and Version identify the fold. Dir, Partitions, Memory, Workers and Temporary are
	// the options of the build.
	Projection      string
	Version         uint32
	Dir             string
	Partitions      *events.Partitions
	Memory, Workers int
	Temporary       bool
	// Log is the id of the log. Ticked is the log time of the last event that the projection reads,
	// or 0.
	Log    events.LogID
	Ticked events.Micros
	// Parts say, for each partition, where its events are in the file of all events.
	Parts []HandoverPart
}

// HandoverPart is where the events of one partition are.
type HandoverPart struct {
	// Blocks has the offset and the length of each compressed block, in bytes.
	Blocks [][2]int64
	// Raw is the number of bytes of all events before compression, Events is their number.
	Raw, Events int64
}

// HandOver ends the adding of events and returns the build for another process, which finishes it
// by [TakeOver]. After that, this Builder may only be closed.
func (b *Builder) HandOver() (*Handover, error) {
	// The other process reads the file only, so no events must stay in memory.
	if err := b.scatter.flush(); err != nil {
		return nil, err
	}
	h := &Handover{
		Projection: b.projection.Name(),
		Version:    b.projection.Version(),
		Dir:        b.options.Dir,
		Partitions: b.options.Partitions,
		Memory:     b.options.Memory,
		Workers:    b.options.Workers,
		Temporary:  b.options.Temporary,
		Log:        b.log,
		Ticked:     b.lastLogTime(),
	}

	for i := range b.scatter.parts {
		p := &b.scatter.parts[i]
		part := HandoverPart{Raw: p.rawBytes, Events: p.eventCount}
		for _, block := range p.blocks {
			part.Blocks = append(part.Blocks, [2]int64{block.offset, int64(block.length)})
		}
		h.Parts = append(h.Parts, part)
	}

	b.sampleMemory = store.MemoryFold{} // free the memory: only the other process folds now
	return h, errors.Join(b.scatter.finish(), b.writeStoreRows())
}

// writeStoreRows writes the rows of the store as a whole as a sorted run, for merge.
func (b *Builder) writeStoreRows() (err error) {
	w, err := store.CreateTable(b.options.FS, b.storeRowsFile(), b.projection, store.Temporary)
	if err != nil {
		return err
	}
	it := b.sequencer.Rows()
	for err == nil && it.Next() {
		err = w.Set(it.Key(), it.Value())
	}
	return errors.Join(err, it.Close(), w.Close())
}

func (b *Builder) storeRowsFile() string { return b.options.FS.PathJoin(b.tempDir, "store") }

// TakeOver returns a Builder that finishes a build which another process has handed over. Of the
// options it uses FS, New and the functions that are called during a build. The others come from
// the handover.
func TakeOver(o Options, h *Handover) *Builder {
	o.Dir = h.Dir
	o.Partitions = h.Partitions
	o.Memory = h.Memory
	o.Workers = h.Workers
	o.Temporary = h.Temporary

	b := newBuilder(o)
	b.log = h.Log
	b.handover = h
	b.scatter = &scatterFile{fs: o.FS, name: b.eventsFile()}
	for i, part := range h.Parts {
		p := &b.scatter.parts[i]
		p.rawBytes = part.Raw
		p.eventCount = part.Events
		for _, at := range part.Blocks {
			p.blocks = append(p.blocks, block{at[0], int32(at[1])})
		}
	}
	return b
}

// lastLogTime returns the log time of the last event that the projection reads, or 0 if there was
// none.
func (b *Builder) lastLogTime() events.Micros {
	if b.handover != nil {
		return b.handover.Ticked
	}
	return b.sequencer.LastTick()
}
