package projections

import (
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
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

// mergerOf returns the merger of a projection; nil: it has none.
func mergerOf(p Projection) *Merger {
	if m, ok := p.(Merging); ok {
		merger := m.Merger()
		return &merger
	}
	return nil
}

// pebble is the merger as the storage engine calls it.
func (m *Merger) pebble() *pebble.Merger {
	if m == nil {
		return nil // the default, which no row is written for
	}
	return &pebble.Merger{
		Name: "skein." + m.Name,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			return (&valueMerger{merger: m, key: slices.Clone(key)}).with(value), nil
		},
	}
}

// valueMerger gathers the values of one key. Those that it is given are good for the call only.
type valueMerger struct {
	merger *Merger
	key    []byte
	// newer are values from the first on, older those before it, the oldest last.
	newer, older [][]byte
}

func (v *valueMerger) with(value []byte) *valueMerger {
	v.newer = append(v.newer, slices.Clone(value))
	return v
}

// MergeNewer takes a value that is newer than all before.
func (v *valueMerger) MergeNewer(value []byte) error {
	v.with(value)
	return nil
}

// MergeOlder takes a value that is older than all before.
func (v *valueMerger) MergeOlder(value []byte) error {
	v.older = append(v.older, slices.Clone(value))
	return nil
}

// Finish merges what was taken.
func (v *valueMerger) Finish(bool) ([]byte, io.Closer, error) {
	values := append(slices.Clone(v.older), v.newer...)
	slices.Reverse(values[:len(v.older)])
	if len(values) == 1 {
		return values[0], nil, nil
	}
	merged, err := v.merger.Merge(nil, v.key, values)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: key %x: %w", ErrCorrupt, v.key, err)
	}
	return merged, nil, nil
}
