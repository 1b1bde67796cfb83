package inbox

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// week counts weeks of log time since 1970. The keys of inbox entries begin with it, so that the old entries of all inboxes are removed
// in ranges, without being read.
type week uint16

const (
	day        = 24 * 3600 * 1_000_000
	weekLength = 7 * day
	// lastWeek keeps weeks below projections.StoreShard. It begins in the year 3225.
	lastWeek = 0xfffe
)

func weekOf(at events.Micros) week { return week(min(max(at, 0)/weekLength, lastWeek)) }

func appendWeek(dst []byte, w week) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(w)), byte(tagEntry))
}

// entryPrefix appends the prefix of the entries of a week in the inbox of a reader, given by shard and key encoding of the id.
func entryPrefix(dst []byte, w week, shard events.Shard, id []byte) []byte {
	return append(binary.BigEndian.AppendUint16(appendWeek(dst, w), uint16(shard)), id...)
}

// entryPrefixes returns the prefixes of the entries of a reader from a time back to another, the newest first.
func entryPrefixes(reader string, from, to events.Micros) (all [][]byte) {
	shard, id := events.ShardOf(reader), events.AppendID(nil, reader)
	for w := int(weekOf(from)); w >= int(weekOf(to)); w-- {
		all = append(all, entryPrefix(nil, week(w), shard, id))
	}
	return all
}

// The horizon is the log time less the feed window, rounded down. Entries of inboxes from before it do not count, and are dropped by the
// week. It is a row of the store, so that queries need not be told the window, and it moves in steps, so that it is seldom written.

const horizonSteps = 8

var horizonKey = projections.AppendPrefix(nil, projections.StoreShard, tagHorizon)

func readHorizon(r projections.Reader) (events.Micros, error) {
	row, ok, err := r.Get(horizonKey)
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errRow("horizon", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// Tick moves the horizon.
func (f *Inbox) Tick(now events.Micros, b *projections.Batch) error {
	if f.horizonOf != b {
		var err error
		if f.horizon, err = readHorizon(b); err != nil {
			return err
		}
		f.horizonOf = b
	}
	window := events.Micros(f.settings.Window.Microseconds())
	step := min(max(window/horizonSteps, 1), day)
	horizon := max(now-window, 0) / step * step
	if horizon <= f.horizon {
		return nil
	}
	// What is above the horizon reaches no further than to the end of its window.
	for w := weekOf(f.horizon); f.horizon > 0 && w < min(weekOf(horizon), weekOf(f.horizon+window+step)+1); w++ {
		if err := dropWeek(b, w); err != nil {
			return err
		}
	}
	f.horizon = horizon
	b.Set(horizonKey, binary.BigEndian.AppendUint64(nil, uint64(horizon)))
	return nil
}

// dropWeek drops the entries of a week. Neighboring partitions share a range, because every read of a row of a table looks at the ranges
// of the table too.
func dropWeek(b *projections.Batch, w week) error {
	const shards = events.NumShards / events.NumPartitions
	prefix := appendWeek(nil, w)
	var lower, upper []byte
	err := b.EachPartition(func(partition uint8) error {
		from := binary.BigEndian.AppendUint16(bytes.Clone(prefix), uint16(partition)*shards)
		if !bytes.Equal(from, upper) {
			if lower != nil {
				b.DeleteRange(lower, upper)
			}
			lower = from
		}
		upper = projections.PrefixEnd(prefix)
		if partition < events.NumPartitions-1 {
			upper = binary.BigEndian.AppendUint16(bytes.Clone(prefix), (uint16(partition)+1)*shards)
		}
		return nil
	})
	if err == nil && lower != nil {
		b.DeleteRange(lower, upper)
	}
	return err
}
