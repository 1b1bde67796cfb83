package bench

import (
	"bytes"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections"
)

// mergerOf is the merger of a projection as the storage engine calls it, for compacting a closed store; nil: there is none.
func mergerOf(p projections.Projection) *pebble.Merger {
	m, ok := p.(projections.Merging)
	if !ok {
		return nil
	}
	merger := m.Merger()
	return &pebble.Merger{
		// As the store names it.
		Name: "skein." + merger.Name,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			return &valueMerger{merge: merger.Merge, key: bytes.Clone(key), values: [][]byte{bytes.Clone(value)}}, nil
		},
	}
}

// valueMerger gathers the values of one key, oldest first.
type valueMerger struct {
	merge  func(dst, key []byte, values [][]byte) ([]byte, error)
	key    []byte
	values [][]byte
}

// MergeNewer is part of pebble.ValueMerger, as are the next two.
func (v *valueMerger) MergeNewer(value []byte) error {
	v.values = append(v.values, bytes.Clone(value))
	return nil
}

// MergeOlder takes a value that is older than all before.
func (v *valueMerger) MergeOlder(value []byte) error {
	v.values = append([][]byte{bytes.Clone(value)}, v.values...)
	return nil
}

// Finish merges what was taken.
func (v *valueMerger) Finish(bool) ([]byte, io.Closer, error) {
	if len(v.values) == 1 {
		return v.values[0], nil, nil
	}
	merged, err := v.merge(nil, v.key, v.values)
	return merged, nil, err
}
