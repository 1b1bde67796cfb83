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

// IsCheckpoint reports whether a key is that of the row with the position. This is the only row in
// which two folds of the same log up to the same position may differ: a store does not write its
// position again after every envelope that changes no row.
func IsCheckpoint(key []byte) bool { return bytes.Equal(key, checkpointKey) }

// DescribeRow describes a row of the runtime for people. It fails with [projections.ErrCorrupt] if
// the runtime cannot have written the row. The package of each projection describes the rows of
// that projection.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	if !projections.IsRuntimeKey(key) || events.Shard(binary.BigEndian.Uint16(key)) != projections.StoreShard {
		return nil, projections.RowError("key", key)
	}

	tag := projections.Tag(key[2])
	d := projections.NewDescription(runtimeKinds[tag], projections.StoreShard)
	return d, describeRuntimeRow(d, tag, key[projections.PrefixLen:], value)
}

// describeRuntimeRow adds the fields of a row of the runtime to d. rest is the part of the key that
// follows the tag.
func describeRuntimeRow(d *projections.Description, tag projections.Tag, rest, value []byte) error {
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

// RuntimeKinds returns the sorted names of the kinds of rows of the runtime.
func RuntimeKinds() []string { return slices.Sorted(maps.Values(runtimeKinds)) }

// runtimeKinds has the name of the kind of row of each tag of the runtime.
var runtimeKinds = map[projections.Tag]string{
	tagFormat:      "format",
	tagFingerprint: "fingerprint",
	tagCheckpoint:  "checkpoint",
	tagBackfill:    "backfill",
	tagClosed:      "backfill-closed",
	tagRejectCount: "rejects",
	tagReject:      "reject",
}

// describeCheckpoint adds the fields of the checkpoint row to d.
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
