package engine

import (
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// MergeFunc merges the values of a key, of which there are at least two, the oldest first. It
// appends the result to dst. It must be associative, because Pebble may merge any neighbors first.
type MergeFunc func(dst, key []byte, values [][]byte) ([]byte, error)

// merger has the functions of a projection that a valueMerger calls.
type merger struct {
	merge MergeFunc
	// wrapError adds the key to an error of merge.
	wrapError func(key []byte, err error) error
}

// Merger returns a merge function in the form that Pebble uses. wrapError makes the error for a row
// whose values cannot be merged.
func Merger(name string, merge MergeFunc, wrapError func(key []byte, err error) error) *pebble.Merger {
	m := &merger{merge, wrapError}
	return &pebble.Merger{
		Name: "skein." + name,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			v, _ := valueMergers.Get().(*valueMerger)
			v.merger = m
			v.key = append(v.key, key...)
			return v, v.MergeNewer(value)
		},
	}
}

// valueMerger collects the values of one key and then merges all of them at once. It implements
// [pebble.ValueMerger].
type valueMerger struct {
	merger *merger
	key    []byte
	// data has copies of all values, because the slices that Pebble passes are valid only during
	// the call.
	data []byte
	// newer has the first value and those that are newer, from the oldest to the newest. older has
	// the values that are older than the first, from the newest to the oldest. Pebble visits values
	// in either order.
	newer, older []span
	// values and merged are scratch memory of Finish.
	values [][]byte
	merged []byte
}

// span stands for data[from:to]. A slice would be wrong once data is reallocated.
type span struct{ from, to int }

// valueMergers is a pool, because a flush needs one valueMerger for each row that it merges.
var valueMergers = sync.Pool{New: func() any { return new(valueMerger) }} //nolint:gochecknoglobals // memory only

// maxPooledBytes is the size of the buffers up to which a valueMerger is put back into the pool.
const maxPooledBytes = 1 << 20

// copyValue appends a copy of a value to data.
func (v *valueMerger) copyValue(value []byte) span {
	from := len(v.data)
	v.data = append(v.data, value...)
	return span{from, len(v.data)}
}

// MergeNewer implements [pebble.ValueMerger]: it adds a value that is newer than all values so far.
func (v *valueMerger) MergeNewer(value []byte) error {
	v.newer = append(v.newer, v.copyValue(value))
	return nil
}

// MergeOlder implements [pebble.ValueMerger]: it adds a value that is older than all values so far.
func (v *valueMerger) MergeOlder(value []byte) error {
	v.older = append(v.older, v.copyValue(value))
	return nil
}

// Finish implements [pebble.ValueMerger]: it returns the merged value, which is valid until the
// returned closer is closed.
func (v *valueMerger) Finish(bool) ([]byte, io.Closer, error) {
	// Put all values in order, the oldest first.
	slices.Reverse(v.older)
	v.values = v.values[:0]
	for _, spans := range [...][]span{v.older, v.newer} {
		for _, s := range spans {
			v.values = append(v.values, v.data[s.from:s.to])
		}
	}

	if len(v.values) == 1 {
		return v.values[0], v, nil
	}
	var err error
	if v.merged, err = v.merger.merge(v.merged[:0], v.key, v.values); err != nil {
		return nil, nil, v.merger.wrapError(slices.Clone(v.key), err)
	}
	return v.merged, v, nil
}

// Close puts the valueMerger back into the pool, so the value that Finish has returned becomes
// invalid.
func (v *valueMerger) Close() error {
	if cap(v.data)+cap(v.merged) > maxPooledBytes {
		return nil
	}
	*v = valueMerger{
		key:    v.key[:0],
		data:   v.data[:0],
		newer:  v.newer[:0],
		older:  v.older[:0],
		values: v.values[:0],
		merged: v.merged[:0],
	}
	valueMergers.Put(v)
	return nil
}
