package export

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/replay"
)

// Errors of Rows.
var (
	// ErrKind means that the projection has no rows of a kind in RowsOptions.Kinds.
	ErrKind = errors.New("export: no such kind")
	// ErrPartition means that there is no such partition.
	ErrPartition = errors.New("export: no such partition")
)

// AllPartitions selects all partitions and the rows that belong to the store as a whole.
const AllPartitions = -1

// RowsOptions select the rows of a store that are exported.
type RowsOptions struct {
	Format Format
	// Projection is the projection of the store; it must be one of [all.All].
	Projection projections.Projection
	// Fingerprint identifies the version and settings of the fold that has built the store.
	Fingerprint projections.Fingerprint
	// Kinds are the kinds of rows to export; empty means all.
	Kinds []string
	// Partition is the partition to export, or [AllPartitions].
	Partition int
	// Progress counts the shards that were read, because keys begin with the shard. It may be nil.
	Progress *replay.Progress
}

// Row is the schema of rows in Parquet.
type Row struct {
	// Kind is the kind of [projections.RowForm].
	Kind string `parquet:"kind,dict"`
	// Shard is the shard of the first id in the key; 65535 stands for rows of the store as a whole.
	Shard int32 `parquet:"shard"`
	// Partition is the partition of the row's home; -1 stands for rows of the store as a whole.
	Partition int32 `parquet:"partition"`
	// ID is the first id in the key; empty if the key has none.
	ID string `parquet:"id"`
	// Key and Value map the names of the fields to their values as text: times in RFC 3339, bytes
	// in base64, and "true" for a set flag.
	Key   map[string]string `parquet:"key" parquet-key:",dict"`
	Value map[string]string `parquet:"value" parquet-key:",dict"`
	// Position is the position of the store. It is the same in all rows.
	Position string `parquet:"position,dict"`

	description *projections.Description
}

// Rows writes the selected rows of a view to w, and returns how many it has written. It returns
// [projections.ErrCorrupt] if a row cannot be decoded, and [ErrKind] or [ErrPartition] if the
// options do not fit the projection.
func Rows(ctx context.Context, w io.Writer, v *projections.View, o RowsOptions) (n Counts, err error) {
	if err := o.check(); err != nil {
		return n, err
	}
	out, err := newRowWriter(w, o.Format, o.metadata(v.Cursor()), appendRow)
	if err != nil {
		return n, err
	}

	o.Progress.StartPhase(replay.Reading, "shards", 1<<16)
	position := v.Cursor().Position().String()
	it := v.Iter(o.bounds())
	defer func() { err = errors.Join(err, it.Close()) }()

	for read := uint64(0); it.Next(); read++ {
		key := it.Key()
		if read%1024 == 0 {
			o.Progress.SetDone(uint64(binary.BigEndian.Uint16(key)))
			if err := ctx.Err(); err != nil {
				return n, err
			}
		}
		if o.Partition != AllPartitions && projections.PartitionOf(o.Projection, key) != o.Partition {
			continue
		}

		d, err := all.DescribeRow(o.Projection.Name(), key, it.Value())
		if err != nil {
			return n, fmt.Errorf("export: %w; repair it with `skein replay repair %s`", err, o.Projection.Name())
		}
		if len(o.Kinds) > 0 && !slices.Contains(o.Kinds, d.Kind) {
			continue
		}

		row := Row{
			Kind:        d.Kind,
			Shard:       int32(d.Shard),
			Partition:   o.partitionOf(key),
			ID:          d.About,
			Position:    position,
			description: d,
		}
		size := 64 + 2*(len(key)+len(it.Value()))
		if o.Format == Parquet {
			row.Key = fieldTexts(d.Key())
			row.Value = fieldTexts(d.Value())
		}
		if err := out.put(&row, size); err != nil {
			return n, err
		}
		n.add(d.Kind)
	}
	if err := it.Error(); err != nil {
		return n, err // without closing the writer: a file that is closed looks complete
	}
	return n, out.close()
}

// check returns an error if the options do not fit the projection.
func (o *RowsOptions) check() error {
	name := o.Projection.Name()
	kinds := all.RowKinds(name)
	for _, k := range o.Kinds {
		if !slices.Contains(kinds, k) {
			return fmt.Errorf("%w: %q of %s, which has %v", ErrKind, k, name, kinds)
		}
	}
	if o.Partition < AllPartitions || o.Partition >= events.NumPartitions {
		return fmt.Errorf("%w: %d; they are 0 to %d", ErrPartition, o.Partition, events.NumPartitions-1)
	}
	return nil
}

// bounds returns the range of keys that contains the selected rows.
func (o *RowsOptions) bounds() (lower, upper []byte) {
	// Rows of months and regions are not sorted by the shard of their partition.
	_, isDated := o.Projection.(projections.MonthKeyed)
	_, hasRegions := o.Projection.(projections.Regional)
	if isDated || hasRegions || o.Partition == AllPartitions {
		return nil, nil
	}
	const shardsPerPartition = events.NumShards / events.NumPartitions
	first := uint16(o.Partition * shardsPerPartition)
	return binary.BigEndian.AppendUint16(nil, first), binary.BigEndian.AppendUint16(nil, first+shardsPerPartition)
}

// metadata returns the metadata of a Parquet file.
func (o *RowsOptions) metadata(at events.Cursor) []metadataEntry {
	return []metadataEntry{
		{"skein.projection", o.Projection.Name()},
		{"skein.version", fmt.Sprint(o.Fingerprint.Version)},
		{"skein.fingerprint", o.Fingerprint.String()},
		{"skein.position", at.Position().String()},
		{"skein.log", logText(at.Log)},
		{"skein.epoch", fmt.Sprint(at.Epoch)},
		{"skein.sequence", fmt.Sprint(at.Seq)},
		{"skein.log_time", at.LastTime.Time().Format(timeLayout)},
		{"skein.exported", nowText()},
	}
}

// partitionOf returns the value of [Row].Partition for a key.
func (o *RowsOptions) partitionOf(key []byte) int32 {
	p := projections.PartitionOf(o.Projection, key)
	if p == projections.StoreWide {
		return -1
	}
	return int32(p)
}

// fieldTexts returns the fields as text by their names.
func fieldTexts(fields []projections.Field) map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f.Name] = fieldText(f.Value)
	}
	return m
}

// fieldText returns the value of a field as text.
func fieldText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case bool:
		return strconv.FormatBool(v)
	case events.Micros:
		return v.Time().Format(timeLayout)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprint(v)
}

// appendRow appends a row as a JSON object. The fields are in the order of the row; numbers and
// booleans are JSON values, all others text.
func appendRow(b []byte, row *Row) ([]byte, error) {
	b = appendText(append(b, `{"kind":`...), row.Kind)
	b = strconv.AppendInt(append(b, `,"shard":`...), int64(row.Shard), 10)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(row.Partition), 10)
	b = appendText(append(b, `,"id":`...), row.ID)
	b = append(b, `,"fields":{`...)

	for i, fields := range [][]projections.Field{row.description.Key(), row.description.Value()} {
		for j, f := range fields {
			isFirst := j == 0 && (i == 0 || len(row.description.Key()) == 0)
			if !isFirst {
				b = append(b, ',')
			}
			b = append(appendText(b, f.Name), ':')
			switch f.Value.(type) {
			case int64, uint64, bool:
				b = append(b, fieldText(f.Value)...)
			default:
				b = appendText(b, fieldText(f.Value))
			}
		}
	}

	b = appendText(append(b, `},"position":`...), row.Position)
	return append(b, '}'), nil
}
