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

// Errors of an export of rows.
var (
	// ErrKind means that the projection has no rows of that kind.
	ErrKind = errors.New("export: no such kind")
	// ErrPartition means that there is no such partition.
	ErrPartition = errors.New("export: no such partition")
)

// AllPartitions stands for all partitions and the rows of the store as a whole.
const AllPartitions = -1

// RowsOptions say which rows of a store are exported.
type RowsOptions struct {
	Format Format
	// Projection is the projection of the store, one of [all.All], and Fingerprint that of the fold that has built the store.
	Projection  projections.Projection
	Fingerprint projections.Fingerprint
	// Kinds are the kinds of rows to export; empty means all.
	Kinds []string
	// Partition is the partition to export, or [AllPartitions].
	Partition int
	// Progress counts shards, since keys begin with the shard; nil disables it.
	Progress *replay.Progress
}

// Row is the schema of rows in Parquet.
type Row struct {
	// Kind is the kind of [projections.RowForm].
	Kind string `parquet:"kind,dict"`
	// Shard is the shard of the first id of the key; 65535 is that of the store.
	Shard int32 `parquet:"shard"`
	// Partition is the partition of the row's home; -1 means that the row belongs to the store as a whole.
	Partition int32 `parquet:"partition"`
	// ID is the first id of the key; empty means that the key has none.
	ID string `parquet:"id"`
	// Key and Value have the fields by their names, as text: times in RFC 3339, bytes in base64, "true" for what is set.
	Key   map[string]string `parquet:"key" parquet-key:",dict"`
	Value map[string]string `parquet:"value" parquet-key:",dict"`
	// Position is the position of the store, the same in all rows.
	Position string `parquet:"position,dict"`

	description *projections.Description
}

// Rows writes the wanted rows of a view to w, and returns how many. It returns [projections.ErrCorrupt] at a row that no fold writes,
// [ErrKind] or [ErrPartition] for options that the projection does not have.
func Rows(ctx context.Context, w io.Writer, v *projections.View, o RowsOptions) (n Counts, err error) {
	if err := o.check(); err != nil {
		return n, err
	}
	out, err := newTable(w, o.Format, o.metadata(v.Cursor()), appendRow)
	if err != nil {
		return n, err
	}
	o.Progress.StartPhase(replay.Reading, "shards", 1<<16)
	position := v.Cursor().Position().String()
	it := v.Iter(o.bounds())
	defer func() { err = errors.Join(err, it.Close()) }()
	for seen := uint64(0); it.Next(); seen++ {
		key := it.Key()
		if seen%1024 == 0 {
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
			Kind: d.Kind, Shard: int32(d.Shard), Partition: o.partitionOf(key), ID: d.About, Position: position, description: d,
		}
		size := 64 + 2*(len(key)+len(it.Value()))
		if o.Format == Parquet {
			row.Key, row.Value = texts(d.Key()), texts(d.Value())
		}
		if err := out.put(&row, size); err != nil {
			return n, err
		}
		n.add(d.Kind)
	}
	if err := it.Error(); err != nil {
		return n, err // a file that is closed looks complete
	}
	return n, out.close()
}

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

// bounds returns the keys between which the wanted rows are.
func (o *RowsOptions) bounds() (lower, upper []byte) {
	_, dated := o.Projection.(projections.Dated)
	_, regional := o.Projection.(projections.Regional)
	if dated || regional || o.Partition == AllPartitions {
		return nil, nil
	}
	const shards = events.NumShards / events.NumPartitions
	first := uint16(o.Partition * shards)
	return binary.BigEndian.AppendUint16(nil, first), binary.BigEndian.AppendUint16(nil, first+shards)
}

func (o *RowsOptions) metadata(at events.Cursor) []pair {
	return []pair{
		{"skein.projection", o.Projection.Name()},
		{"skein.version", fmt.Sprint(o.Fingerprint.Version)},
		{"skein.fingerprint", o.Fingerprint.String()},
		{"skein.position", at.Position().String()},
		{"skein.log", logText(at.Log)},
		{"skein.epoch", fmt.Sprint(at.Epoch)},
		{"skein.sequence", fmt.Sprint(at.Seq)},
		{"skein.log_time", at.LastTime.Time().Format(timeForm)},
		{"skein.exported", nowText()},
	}
}

func (o *RowsOptions) partitionOf(key []byte) int32 {
	if p := projections.PartitionOf(o.Projection, key); p != projections.StoreWide {
		return int32(p)
	}
	return -1
}

func texts(fields []projections.Field) map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f.Name] = fieldText(f.Value)
	}
	return m
}

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
		return v.Time().Format(timeForm)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprint(v)
}

// appendRow appends a row as a JSON object: fields in the order of the row, numbers and booleans as such, all others as text.
func appendRow(b []byte, row *Row) ([]byte, error) {
	b = appendText(append(b, `{"kind":`...), row.Kind)
	b = strconv.AppendInt(append(b, `,"shard":`...), int64(row.Shard), 10)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(row.Partition), 10)
	b = appendText(append(b, `,"id":`...), row.ID)
	b = append(b, `,"fields":{`...)
	for i, fields := range [][]projections.Field{row.description.Key(), row.description.Value()} {
		for j, f := range fields {
			if j > 0 || i > 0 && len(row.description.Key()) > 0 {
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
