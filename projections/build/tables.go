package build

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// tableBytes is about the size of a table in bytes.
const tableBytes = 32 << 20

// tables writes rows into tables of about tableBytes. Rows must come in the order of their keys.
type tables struct {
	b     *Builder
	level projections.TableLevel
	w     *sstable.Writer // nil between two tables
	rows  int64           // in w
	names []string        // of the files, in the order of keys
}

func (t *tables) set(key, value []byte) (err error) {
	if t.w == nil {
		name := t.b.newFile("table")
		if t.w, err = projections.CreateTable(t.b.o.FS, name, t.b.projection, t.level); err != nil {
			return err
		}
		t.names = append(t.names, name)
	}
	if err := t.w.Set(key, value); err != nil {
		return err
	}
	t.rows++
	if t.w.Raw().EstimatedSize() < tableBytes {
		return nil
	}
	return t.close()
}

func (t *tables) close() error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	t.b.rows.Add(t.rows)
	t.w, t.rows = nil, 0
	return err
}

// inPlace reports whether a row sorts among the rows of its own partition, so that it needs no merge.
func inPlace(partition uint8, key []byte) bool {
	shard := events.Shard(binary.BigEndian.Uint16(key))
	return shard < events.NumShards && shard.Partition() == partition
}

// runs collects rows in any order, and writes them to files as sorted runs.
type runs struct {
	b *Builder
	// most is the number of bytes of rows that are collected in memory before they become a run.
	most int
	data []byte // keys and values of rows
	rows []row
	// all is the number of rows, in memory and in files.
	all int64
	// names are the files of the runs. The last run stays in memory.
	names []string
}

// row is a row in data: its key is data[key:value], its value data[value:end].
type row struct{ key, value, end int }

func (r *runs) keyOf(w row) []byte   { return r.data[w.key:w.value:w.value] }
func (r *runs) valueOf(w row) []byte { return r.data[w.value:w.end:w.end] }

func (r *runs) set(key, value []byte) error {
	if len(r.data)+len(key)+len(value)+24*len(r.rows) > r.most {
		if err := r.flush(); err != nil {
			return err
		}
	}
	at := len(r.data)
	r.all++
	r.data = append(append(r.data, key...), value...)
	r.rows = append(r.rows, row{at, at + len(key), len(r.data)})
	return nil
}

func (r *runs) sort() {
	slices.SortFunc(r.rows, func(a, b row) int { return bytes.Compare(r.keyOf(a), r.keyOf(b)) })
}

func (r *runs) flush() error {
	if len(r.rows) == 0 {
		return nil
	}
	r.sort()
	name := r.b.newFile("run")
	w, err := projections.CreateTable(r.b.o.FS, name, r.b.projection, projections.FirstLevel)
	if err != nil {
		return err
	}
	for _, row := range r.rows {
		if err := w.Set(r.keyOf(row), r.valueOf(row)); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	r.names = append(r.names, name)
	r.data, r.rows = r.data[:0], r.rows[:0]
	return w.Close()
}

// cursor reads a sorted run.
type cursor interface {
	// next moves to the next row, the first call to the first one. It returns false at the end.
	next() (bool, error)
	// key returns the key of the row, valid until next.
	key() []byte
	// value returns the value of the row, valid until next.
	value() ([]byte, error)
	close() error
}

// inMemory reads the run that stayed in memory.
type inMemory struct {
	of *runs
	at int
}

func (m *inMemory) next() (bool, error)    { m.at++; return m.at <= len(m.of.rows), nil }
func (m *inMemory) key() []byte            { return m.of.keyOf(m.of.rows[m.at-1]) }
func (m *inMemory) value() ([]byte, error) { return m.of.valueOf(m.of.rows[m.at-1]), nil }
func (m *inMemory) close() error           { return nil }

// ofStore reads the rows of the store as a whole.
type ofStore struct{ it projections.Iterator }

func (s ofStore) next() (bool, error)    { return s.it.Next(), nil } // close returns the error of the iterator
func (s ofStore) key() []byte            { return s.it.Key() }
func (s ofStore) value() ([]byte, error) { return s.it.Value(), nil }
func (s ofStore) close() error           { return s.it.Close() }

// inFile reads a run from its file.
type inFile struct {
	r       *sstable.Reader
	it      sstable.Iterator
	started bool
	current []byte
	val     func() ([]byte, error)
}

func (b *Builder) openRun(ctx context.Context, name string) (*inFile, error) {
	r, err := projections.OpenTable(ctx, b.o.FS, name, b.projection)
	if err != nil {
		return nil, err
	}
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &inFile{r: r, it: it}, nil
}

func (f *inFile) next() (bool, error) {
	kv := f.it.Next
	if !f.started {
		f.started = true
		kv = f.it.First
	}
	row := kv()
	if row == nil {
		return false, f.it.Error()
	}
	f.current = row.K.UserKey
	f.val = func() ([]byte, error) {
		v, _, err := row.Value(nil)
		return v, err
	}
	return true, nil
}

func (f *inFile) key() []byte            { return f.current }
func (f *inFile) value() ([]byte, error) { return f.val() }
func (f *inFile) close() error           { return errors.Join(f.it.Close(), f.r.Close()) }

// merge gives set the rows of all runs in the order of their keys. No two runs have a key in common: a key belongs to one partition. It
// calls merging before every few thousand rows, and closes the runs.
func merge(runs []cursor, set func(key, value []byte) error, merging func(rows int64) error) (err error) {
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.close())
		}
	}()
	h := heap{}
	for _, r := range runs {
		ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			h.push(r)
		}
	}
	for n := int64(0); len(h) > 0; n++ {
		if n%4096 == 0 {
			if err := merging(n); err != nil {
				return err
			}
		}
		value, err := h[0].value()
		if err != nil {
			return fmt.Errorf("merge runs: %w", err)
		}
		if err := set(h[0].key(), value); err != nil {
			return err
		}
		ok, err := h[0].next()
		if err != nil {
			return fmt.Errorf("merge runs: %w", err)
		}
		if !ok {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		}
		h.down()
	}
	return nil
}

// heap is a binary heap of runs: the first one has the least key. It is not container/heap, because merge only replaces the first run
// and calls down, once for each row.
type heap []cursor

func (h *heap) push(c cursor) {
	*h = append(*h, c)
	for i := len(*h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		(*h)[i], (*h)[parent] = (*h)[parent], (*h)[i]
		i = parent
	}
}

func (h *heap) less(i, j int) bool { return bytes.Compare((*h)[i].key(), (*h)[j].key()) < 0 }

func (h *heap) down() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*h); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		(*h)[i], (*h)[least] = (*h)[least], (*h)[i]
		i = least
	}
}
