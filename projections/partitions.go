package projections

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Dated is implemented by a projection that has rows which begin with a month, with the shard behind the tag.
type Dated interface {
	// Dated returns the tags of those rows.
	Dated() []Tag
}

// Regional is implemented by a projection that has regions: derived rows in the order in which they are asked for, with their
// home inside the key. A region row begins with the shard and the id by which it is found, such as the owner of a post, so that
// one walk finds the rows of all homes.
type Regional interface {
	// Regions returns the tags of those rows.
	Regions() []Tag
	// RegionHome returns the partition of the home that a region's key names. It returns false for a key of another tag.
	RegionHome(key []byte) (partition uint8, ok bool)
}

// Homed is implemented by a projection that delivers some events to every partition for what stores keep in memory.
type Homed interface {
	// RowsAtHome reports whether an event changes rows at the home of its User alone. A build keeps nothing in memory, and takes it
	// nowhere else.
	RowsAtHome(ev *events.Event) bool
}

// RouteRows adds the partitions whose rows an event may change: fewer than those of its route, where the others keep something in memory.
func RouteRows(p Projection, ev *events.Event, to *events.Partitions) {
	if homed, ok := p.(Homed); ok && homed.RowsAtHome(ev) {
		to.AddHome(ev.User)
		return
	}
	p.Route(ev, to)
}

// AppendPartition appends the prefix of the rows of a whole partition that are found by another id than their home: the first
// shard of the partition, then the tag. The id by which they are found comes next, then the home.
func AppendPartition(dst []byte, partition uint8, tag Tag) []byte {
	return AppendPrefix(dst, events.Shard(uint16(partition)<<5), tag)
}

// StoreWide stands for a partition for the rows that belong to none: those of the runtime, of the store as a
// whole, and those that no fold can have written.
const StoreWide = events.NumPartitions

// PartitionOf returns the partition of a row of a projection, which is that of its home, or [StoreWide].
func PartitionOf(p Projection, key []byte) int {
	if len(key) < PrefixLen {
		return StoreWide
	}
	if r, ok := p.(Regional); ok {
		if partition, ok := r.RegionHome(key); ok {
			return int(partition)
		}
	}
	shard := events.Shard(binary.BigEndian.Uint16(key))
	if dated, ok := p.(Dated); ok && len(key) >= PrefixLen+2 && slices.Contains(dated.Dated(), Tag(key[2])) {
		shard = events.Shard(binary.BigEndian.Uint16(key[PrefixLen:]))
	}
	if shard >= events.NumShards {
		return StoreWide
	}
	return int(shard.Partition())
}

// Holding is the part of the rows of a projection that a store holds.
type Holding struct {
	Projection Projection
	// Held are the partitions; nil means all, which costs no lookup.
	Held *events.Partitions
}

// NilIfAll returns nil for a set of all partitions.
func NilIfAll(held *events.Partitions) *events.Partitions {
	if held != nil && *held == events.AllPartitions() {
		return nil
	}
	return held
}

// Partitions returns the partitions that are held.
func (h *Holding) Partitions() events.Partitions {
	if h.Held == nil {
		return events.AllPartitions()
	}
	return *h.Held
}

// Has reports whether the partition of a user or item is held.
func (h *Holding) Has(id string) bool {
	return h.Held == nil || h.Held.Has(events.ShardOf(id).Partition())
}

// Delivers reports whether an event is delivered. The set is scratch: one of its own would be allocated for every event, because a
// projection is called through an interface.
func (h *Holding) Delivers(ev *events.Event, to *events.Partitions) bool {
	if h.Held == nil {
		return true
	}
	*to = events.Partitions{}
	h.Projection.Route(ev, to)
	// What concerns every home also concerns rows of the store as a whole, which a store of no partition has, too.
	return to.Meets(h.Held) || *to == events.AllPartitions()
}

// MayWrite reports whether the fold may write a row.
func (h *Holding) MayWrite(key []byte) bool {
	if h.Held == nil {
		return true
	}
	p := PartitionOf(h.Projection, key)
	return p == StoreWide || h.Held.Has(uint8(p))
}
