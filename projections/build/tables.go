package build

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// tableBytes is about the size of a table in bytes.
const tableBytes = 32 << 20

// tables writes rows into tables of about tableBytes each. The rows must be set in the order of
// their keys.
type tableWriter struct {
	builder *Builder
	level   store.TableLevel
	writer  *sstable.Writer // nil if no table is open
	rows    int64           // in the open table
	allRows int64           // in the tables that are closed
	names   []string        // of the files, in the order of keys
}

// set writes a row. It creates a table first if none is open, and closes the table when it is large
// enough.
func (t *tableWriter) set(key, value []byte) (err error) {
	if t.writer == nil {
		name := t.builder.newFilePath("table")
		if t.writer, err = store.CreateTable(t.builder.options.FS, name, t.builder.projection, t.level); err != nil {
			return err
		}
		t.names = append(t.names, name)
	}
	if err := t.writer.Set(key, value); err != nil {
		return err
	}
	t.rows++
	if t.writer.Raw().EstimatedSize() < tableBytes {
		return nil
	}
	return t.close()
}

// close closes the open table, if there is one.
func (t *tableWriter) close() error {
	if t.writer == nil {
		return nil
	}
	err := t.writer.Close()
	t.builder.rows.Add(t.rows)
	t.allRows += t.rows
	t.writer = nil
	t.rows = 0
	return err
}

// isInPlace reports whether the key of a row begins with a shard of the partition, so that the row
// sorts with those of its partition and needs no merge.
func isInPlace(partition uint8, key []byte) bool {
	shard := events.Shard(binary.BigEndian.Uint16(key))
	return shard < events.NumShards && shard.Partition() == partition
}

// runSet collects rows in any order, and writes them to files as sorted runs. No two rows have the
// same key.
type runSet struct {
	builder *Builder
	// maxBytes is how many bytes of rows are collected in memory before they are written as a run.
	maxBytes int
	// data has the keys and values of the rows in memory.
	data []byte
	rows []row
	// rowCount is the number of all rows, in memory and in files.
	rowCount int64
	// names are the files of the runs.
	names []string
	// samples has the key of one row in sampleEvery. Pieces are cut at these keys.
	samples [][]byte
}

// sampleEvery is how many rows there are per key in samples.
const sampleEvery = 4096

// row says where a row is in data: its key is data[key:value] and its value is data[value:end].
type row struct{ key, value, end int }

func (r *runSet) keyOf(w row) []byte   { return r.data[w.key:w.value:w.value] }
func (r *runSet) valueOf(w row) []byte { return r.data[w.value:w.end:w.end] }

// set adds a row. If there are enough rows in memory, it first writes them as a run.
func (r *runSet) set(key, value []byte) error {
	const rowBytes = 24 // the size of a row struct
	if len(r.data)+len(key)+len(value)+rowBytes*len(r.rows) > r.maxBytes {
		if err := r.flush(); err != nil {
			return err
		}
	}

	r.rowCount++
	if r.rowCount%sampleEvery == 0 {
		r.samples = append(r.samples, bytes.Clone(key))
	}
	start := len(r.data)
	r.data = append(append(r.data, key...), value...)
	r.rows = append(r.rows, row{start, start + len(key), len(r.data)})
	return nil
}

// flush writes the rows in memory to a file, as a sorted run.
func (r *runSet) flush() error {
	if len(r.rows) == 0 {
		return nil
	}
	slices.SortFunc(r.rows, func(a, b row) int { return bytes.Compare(r.keyOf(a), r.keyOf(b)) })

	name := r.builder.newFilePath("run")
	w, err := store.CreateTable(r.builder.options.FS, name, r.builder.projection, store.Temporary)
	if err != nil {
		return err
	}
	for _, row := range r.rows {
		if err := w.Set(r.keyOf(row), r.valueOf(row)); err != nil {
			return errors.Join(err, w.Close())
		}
	}

	r.names = append(r.names, name)
	r.data = r.data[:0]
	r.rows = r.rows[:0]
	return w.Close()
}

// keyRange is the range of keys lower <= key < upper. A nil bound means that there is no bound.
type keyRange struct{ lower, upper []byte }

// pieces divides all keys into at most n pieces with about the same number of rows each.
func (r *runSet) pieces(n int) (cut []keyRange) {
	slices.SortFunc(r.samples, bytes.Compare)
	n = min(n, len(r.samples)+1)
	var lower []byte
	for i := 1; i < n; i++ {
		upper := r.samples[i*len(r.samples)/n]
		cut = append(cut, keyRange{lower, upper})
		lower = upper
	}
	return append(cut, keyRange{lower, nil})
}
