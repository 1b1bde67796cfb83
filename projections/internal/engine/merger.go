package projections

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections/internal/overlay"
)

// Merging is implemented by a projection that writes with [Batch.Merge].
type Merging interface {
	// Merger says how. Its name is part of the files of the store, which open with no other: it changes with what merging
	// means.
	Merger() Merger
}

// Merger merges values that were written to one key.
//
// A merged value is a value again, and it never matters in which groups values were merged, as long as their order stays:
// merge(a, merge(b, c)) is merge(merge(a, b), c). Pebble merges whenever it meets values of one key, in flushes, compactions
// and reads. Two builds agree on every row if equal contents are equal bytes (I4).
type Merger struct {
	Name string
	// Merge appends the value that some values, oldest first, at least two, amount to.
	Merge func(dst, key []byte, values [][]byte) ([]byte, error)
}

// UnreadableRowError is the error of reading a row whose values cannot be merged. It is an [ErrCorrupt].
type UnreadableRowError struct {
	Key []byte
	Err error
}

// Error names the key.
func (e *UnreadableRowError) Error() string {
	return fmt.Sprintf("%v: key %x: %v", ErrCorrupt, e.Key, e.Err)
}

// Unwrap gives [ErrCorrupt] and the error of the merger.
func (e *UnreadableRowError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// mergerOf returns the merger of a projection; nil means it has none.
func mergerOf(p Projection) *Merger {
	if m, ok := p.(Merging); ok {
		merger := m.Merger()
		return &merger
	}
	return nil
}

// EngineMerger returns the merger of a projection as the storage engine calls it, for tools that open the files of a closed
// store themselves; nil means the projection has none.
func EngineMerger(p Projection) *pebble.Merger { return mergerOf(p).pebble() }

// mergeFunc is the merger as the overlay calls it.
func (m *Merger) mergeFunc() overlay.MergeFunc {
	if m == nil {
		return nil
	}
	return m.Merge
}

// pebble is the merger as the storage engine calls it.
func (m *Merger) pebble() *pebble.Merger {
	if m == nil {
		return nil // the default, which no row is written for
	}
	return &pebble.Merger{
		Name: "skein." + m.Name,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			v, _ := valueMergers.Get().(*valueMerger)
			v.merger = m
			v.key = append(v.key, key...)
			return v, v.MergeNewer(value)
		},
	}
}

// valueMerger gathers the values of one key. Those that it is given are good for the call only.
type valueMerger struct {
	merger *Merger
	key    []byte
	// newer are values from the first on, older those before it, the oldest last: both as places in data.
	newer, older []place
	data         []byte
	// values and out are space for merging.
	values [][]byte
	out    []byte
}

type place struct{ from, to int }

// valueMergers are used again: a flush merges a value for each of its rows.
var valueMergers = sync.Pool{New: func() any { return new(valueMerger) }} //nolint:gochecknoglobals // memory only

// maxIdleMerger is the most memory of a merger of values that is kept, in bytes.
const maxIdleMerger = 1 << 20

func (v *valueMerger) add(value []byte) place {
	from := len(v.data)
	v.data = append(v.data, value...)
	return place{from, len(v.data)}
}

// MergeNewer takes a value that is newer than all before.
func (v *valueMerger) MergeNewer(value []byte) error {
	v.newer = append(v.newer, v.add(value))
	return nil
}

// MergeOlder takes a value that is older than all before.
func (v *valueMerger) MergeOlder(value []byte) error {
	v.older = append(v.older, v.add(value))
	return nil
}

// Finish merges what was taken. The result is good until Close.
func (v *valueMerger) Finish(bool) ([]byte, io.Closer, error) {
	slices.Reverse(v.older)
	v.values = v.values[:0]
	for _, places := range [...][]place{v.older, v.newer} {
		for _, p := range places {
			v.values = append(v.values, v.data[p.from:p.to])
		}
	}
	if len(v.values) == 1 {
		return v.values[0], v, nil
	}
	var err error
	if v.out, err = v.merger.Merge(v.out[:0], v.key, v.values); err != nil {
		return nil, nil, &UnreadableRowError{Key: slices.Clone(v.key), Err: err}
	}
	return v.out, v, nil
}

// Close gives back the memory of the result.
func (v *valueMerger) Close() error {
	if cap(v.data)+cap(v.out) <= maxIdleMerger {
		*v = valueMerger{
			key: v.key[:0], newer: v.newer[:0], older: v.older[:0], data: v.data[:0], values: v.values[:0], out: v.out[:0],
		}
		valueMergers.Put(v)
	}
	return nil
}
