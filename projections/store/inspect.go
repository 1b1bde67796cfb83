package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// IsCheckpoint reports whether a row is that of the position: of all rows the only one in which two folds of one log up to one
// position may differ.
func IsCheckpoint(key []byte) bool { return bytes.Equal(key, checkpointKey) }

// DescribeRow says what a row of the runtime says. It returns [projections.ErrCorrupt] for a row that the runtime cannot have written.
// The rows of a projection are described by its own package, by [projections.DescribeForm].
func DescribeRow(key, value []byte) (*projections.Description, error) {
	if !projections.IsRuntimeKey(key) || events.Shard(binary.BigEndian.Uint16(key)) != projections.StoreShard {
		return nil, projections.RowError("key", key)
	}
	tag := projections.Tag(key[2])
	d := projections.NewDescription(runtimeKinds[tag], projections.StoreShard)
	return d, describeRuntime(d, tag, key[projections.PrefixLen:], value)
}

// describeRuntime describes a row of the runtime. The rest of the key follows the tag.
func describeRuntime(d *projections.Description, tag projections.Tag, rest, value []byte) error {
	switch tag {
	case tagFormat:
		if len(value) == 4 {
			d.InValue()
			d.Uint("version", uint64(binary.BigEndian.Uint32(value)))
			return nil
		}
	case tagFingerprint:
		d.InValue()
		d.Add("fingerprint", string(value), " "+string(value))
		return nil
	case tagCheckpoint:
		return describeCheckpoint(d, value)
	case tagBackfill:
		if len(rest) >= 2 && len(value) == 8 {
			d.Field("kind", events.Kind(rest[0]).String())
			d.Field("source", string(rest[1:]))
			d.InValue()
			d.Uint("highest-offset", binary.BigEndian.Uint64(value))
			return nil
		}
	case tagClosed:
		d.Quoted("source", string(rest))
		return nil
	case tagRejectCount:
		if len(value) == 8 {
			d.InValue()
			d.Uint("count", binary.BigEndian.Uint64(value))
			return nil
		}
	case tagReject:
		r, err := parseReject(value)
		d.InValue()
		d.Uint("number", r.Number)
		d.Uint("seq", r.Seq)
		d.Int("slot", int64(r.Slot))
		d.Add("message", r.Rejection.Message, ": "+r.Rejection.Message)
		return err
	}
	return projections.RowError(fmt.Sprintf("row of the runtime %02x %x:", byte(tag), rest), value)
}

// RuntimeKinds returns the kinds of the rows of the runtime, sorted.
func RuntimeKinds() []string { return slices.Sorted(maps.Values(runtimeKinds)) }

// runtimeKinds are the kinds of the rows of the runtime.
var runtimeKinds = map[projections.Tag]string{
	tagFormat: "format", tagFingerprint: "fingerprint", tagCheckpoint: "checkpoint", tagBackfill: "backfill",
	tagClosed: "backfill-closed", tagRejectCount: "rejects", tagReject: "reject",
}

func describeCheckpoint(d *projections.Description, row []byte) error {
	c, p, err := parseCheckpoint(row)
	d.InValue()
	d.Field("log", fmt.Sprintf("%x", c.Log))
	d.Uint("epoch", uint64(c.Epoch))
	d.Uint("seq", c.Seq)
	d.Time("last-time", c.LastTime)
	if p != (progress{}) {
		d.Section("in-progress")
		d.Uint("seq", p.Seq)
		d.Int("slot", int64(p.Slot))
		d.Int("step", int64(p.Step))
	}
	return err
}
