package projections

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
)

// MonthKeyed is implemented by a projection some of whose keys begin with a month in place of the shard. In these keys the shard
// follows the tag.
type MonthKeyed interface {
	// MonthTags returns the tags of these rows.
	MonthTags() []Tag
}

// Regional is implemented by a projection that has regions. A region is a set of derived rows that are sorted in the order in
// which queries read them. A region key begins with the shard and the id by which the row is looked up, such as the owner of
// a post, and names its home further behind. One scan therefore finds the rows of all homes.
type Regional interface {
	// Regions returns the tags of these rows.
	Regions() []Tag
	// RegionHome returns the partition of the home that a region key names. ok is false for a key with another tag.
	RegionHome(key []byte) (partition uint8, ok bool)
}

// HomeRouter is implemented by a projection that routes some events to every partition only because every store needs them for what
// it keeps in memory.
type HomeRouter interface {
	// ChangesOnlyHome reports whether an event changes only rows at the home of its User. A build keeps nothing else in memory, so
	// it delivers such an event to that home alone.
	ChangesOnlyHome(ev *events.Event) bool
}

// RouteRows adds to the set the partitions whose rows an event may change. For a [HomeRouter] projection these may be fewer than the
// partitions of the route.
func RouteRows(p Projection, ev *events.Event, to *events.Partitions) {
	if homed, ok := p.(HomeRouter); ok && homed.ChangesOnlyHome(ev) {
		to.AddHome(ev.User)
		return
	}
	p.Route(ev, to)
}

// AppendPartition appends the prefix of rows that are grouped by partition and looked up by an id that is not their home. The
// prefix is the first shard of the partition and the tag. In the key, the lookup id follows, and then the home.
func AppendPartition(dst []byte, partition uint8, tag Tag) []byte {
	return AppendPrefix(dst, events.Shard(uint16(partition)<<5), tag)
}

// StoreWide is returned in place of a partition for rows that belong to none: rows of the runtime, rows of the store as a whole,
// and rows that no fold can have written.
const StoreWide = events.NumPartitions

// PartitionOf returns the partition of the home of a row, or [StoreWide].
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
	if dated, ok := p.(MonthKeyed); ok && len(key) >= PrefixLen+2 && slices.Contains(dated.MonthTags(), Tag(key[2])) {
		shard = events.Shard(binary.BigEndian.Uint16(key[PrefixLen:]))
	}
	if shard >= events.NumShards {
		return StoreWide
	}
	return int(shard.Partition())
}

// Holding says which partitions of a projection a store holds.
type Holding struct {
	Projection Projection
	// Held is the set of partitions that the store holds. nil means all of them, and avoids a lookup for every row and event.
	Held *events.Partitions
}

// NilIfAll returns nil if the set has all partitions, and otherwise the set itself.
func NilIfAll(held *events.Partitions) *events.Partitions {
	if held != nil && *held == events.AllPartitions() {
		return nil
	}
	return held
}

// Partitions returns the partitions that the store holds.
func (h *Holding) Partitions() events.Partitions {
	if h.Held == nil {
		return events.AllPartitions()
	}
	return *h.Held
}

// Has reports whether the store holds the partition of a user or item.
func (h *Holding) Has(id string) bool {
	return h.Held == nil || h.Held.Has(events.ShardOf(id).Partition())
}

// Delivers reports whether the fold of the store applies an event. scratch is overwritten. The caller passes it in because a local
// variable would be allocated for every event: it escapes to the projection, which is called through an interface.
func (h *Holding) Delivers(ev *events.Event, scratch *events.Partitions) bool {
	if h.Held == nil {
		return true
	}
	*scratch = events.Partitions{}
	h.Projection.Route(ev, scratch)

	// An event that concerns every home also concerns rows of the store as a whole. A store without any partition has such
	// rows, too.
	return scratch.Intersects(h.Held) || *scratch == events.AllPartitions()
}

// MayWrite reports whether the fold may write a row: its partition must be held, or it must belong to the store as a whole.
func (h *Holding) MayWrite(key []byte) bool {
	if h.Held == nil {
		return true
	}
	p := PartitionOf(h.Projection, key)
	return p == StoreWide || h.Held.Has(uint8(p))
}
