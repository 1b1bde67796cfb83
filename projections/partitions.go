package projections

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
)

// MonthKeyed is implemented by a projection that has keys with a month in place of the shard. In
// these keys the shard follows the tag. So the rows of one month lie together.
type MonthKeyed interface {
	// MonthTags returns the tags of these keys.
	MonthTags() []Tag
}

// Regional is implemented by a projection that has regions. A region is the rows of a tag whose
// keys do not begin with the shard of their home, but with what queries look up, such as the shard
// and the id of a pin's owner. So one scan finds the rows of all homes. The home, or its partition,
// stands further behind in the key.
type Regional interface {
	// Regions returns the tags of the regions.
	Regions() []Tag
	// RegionHome returns the partition of the home in a key of a region. ok is false for any other
	// key.
	RegionHome(key []byte) (partition uint8, ok bool)
}

// HomeRouter is implemented by a projection that routes some events to partitions whose rows they
// do not change, because every store keeps something from these events in memory.
type HomeRouter interface {
	// ChangesOnlyHome reports whether the event changes only rows at the home of its User. A build
	// makes only rows, so it delivers such an event to the partition of this home alone.
	ChangesOnlyHome(ev *events.Event) bool
}

// RouteRows adds to partitions every partition whose rows the event may change. For a [HomeRouter]
// these may be fewer than those of [Projection.Route].
func RouteRows(p Projection, ev *events.Event, partitions *events.Partitions) {
	if router, ok := p.(HomeRouter); ok && router.ChangesOnlyHome(ev) {
		partitions.AddHome(ev.User)
		return
	}
	p.Route(ev, partitions)
}

// ShardsPerPartition is the number of shards of a partition. They are neighbors, so the rows of a
// partition with one tag, or of one month, lie together within each of its shards.
const ShardsPerPartition = events.NumShards / events.NumPartitions

// FirstShard returns the first shard of a partition.
func FirstShard(partition uint8) events.Shard {
	return events.Shard(partition) * ShardsPerPartition
}

// AppendPartition appends the first shard of the partition and the tag to dst. Rows with this
// prefix are in the partition of their home, but queries look them up by another id: in the key,
// that id follows, and then the home.
func AppendPartition(dst []byte, partition uint8, tag Tag) []byte {
	return AppendPrefix(dst, FirstShard(partition), tag)
}

// StoreWide is what [PartitionOf] returns for rows that belong to no partition: rows of the store
// as a whole, which include those of the runtime, and rows that no fold can have written.
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
	// Held is the set of partitions that the store holds. nil means all of them, and avoids a
	// lookup for every row and event.
	Held *events.Partitions
}

// NilIfAll returns nil if held is nil or has all partitions, and otherwise held itself.
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

// Delivers reports whether the store applies an event. Delivers overwrites *scratch. A local
// variable would be allocated for every event, because it would escape to the projection, which is
// called through an interface.
func (h *Holding) Delivers(ev *events.Event, scratch *events.Partitions) bool {
	if h.Held == nil {
		return true
	}
	*scratch = events.Partitions{}
	h.Projection.Route(ev, scratch)

	// An event that is routed to all partitions may also change rows of the store as a whole, which
	// even a store without partitions has.
	return scratch.Intersects(h.Held) || *scratch == events.AllPartitions()
}

// MayWrite reports whether the fold may write the row: the store must hold its partition, or the
// row must belong to the store as a whole.
func (h *Holding) MayWrite(key []byte) bool {
	if h.Held == nil {
		return true
	}
	p := PartitionOf(h.Projection, key)
	return p == StoreWide || h.Held.Has(uint8(p))
}
