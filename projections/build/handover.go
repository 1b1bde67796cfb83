package build

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// Handover is a build to which all events were added, for another process to finish. It names files beside the store, which stay until
// the Builder is closed.
type Handover struct {
	// Projection and Version name the fold. Dir, Partitions, Memory and Workers are the options of the build.
	Projection      string
	Version         uint32
	Dir             string
	Partitions      *events.Partitions
	Memory, Workers int
	Temporary       bool
	// Log is the id of the log, Ticked the log time of its last event.
	Log    events.LogID
	Ticked events.Micros
	// Parts say where the events of each partition are in the file of all.
	Parts []HandoverPart
}

// HandoverPart is where the events of one partition are.
type HandoverPart struct {
	// Blocks are the offset and the length of each, in bytes.
	Blocks      [][2]int64
	Raw, Events int64
}

// HandOver ends the adding, and gives the rest of the build away: [TakeOver] finishes it, and this Builder may only be closed.
func (b *Builder) HandOver() (*Handover, error) {
	if err := b.scatter.waitEncoded(); err != nil {
		return nil, err
	}
	h := &Handover{
		Projection: b.projection.Name(), Version: b.projection.Version(), Dir: b.options.Dir, Partitions: b.options.Partitions, Memory: b.options.Memory,
		Workers: b.options.Workers, Temporary: b.options.Temporary, Log: b.log, Ticked: b.lastLogTime(),
	}
	for i := range b.scatter.parts {
		p := &b.scatter.parts[i]
		if len(p.buf) > 0 {
			if err := b.scatter.flush(p); err != nil {
				return nil, err
			}
			p.buf = nil
		}
		part := HandoverPart{Raw: p.rawBytes, Events: p.eventCount}
		for _, block := range p.blocks {
			part.Blocks = append(part.Blocks, [2]int64{block.offset, int64(block.length)})
		}
		h.Parts = append(h.Parts, part)
	}
	b.sampleMemory = store.MemoryFold{}
	return h, errors.Join(b.scatter.finish(), b.writeStoreRows())
}

// writeStoreRows writes the rows of the store as a whole, as a sorted run.
func (b *Builder) writeStoreRows() (err error) {
	w, err := store.CreateTable(b.options.FS, b.storeRowsFile(), b.projection, store.FirstLevel)
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

// TakeOver returns the Builder that finishes a build. Of the options it takes the file system, New and what is called.
func TakeOver(o Options, h *Handover) *Builder {
	o.Dir, o.Partitions, o.Memory, o.Workers, o.Temporary = h.Dir, h.Partitions, h.Memory, h.Workers, h.Temporary
	b := prepare(o)
	b.log, b.handover = h.Log, h
	b.scatter = &scatterFile{fs: o.FS, name: b.eventsFile()}
	for i, part := range h.Parts {
		p := &b.scatter.parts[i]
		p.rawBytes, p.eventCount = part.Raw, part.Events
		for _, at := range part.Blocks {
			p.blocks = append(p.blocks, block{at[0], int32(at[1])})
		}
	}
	return b
}

// ticked returns the log time of the last event that the projection reads; 0 means there was none.
func (b *Builder) lastLogTime() events.Micros {
	if b.handover != nil {
		return b.handover.Ticked
	}
	return b.sequencer.Ticked()
}
