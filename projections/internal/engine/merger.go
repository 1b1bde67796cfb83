package engine

import (
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// MergeFunc appends the value that some values of a key, oldest first, at least two, amount to.
type MergeFunc func(dst, key []byte, values [][]byte) ([]byte, error)

type merger struct {
	merge      MergeFunc
	unreadable func(key []byte, err error) error
}

// Merger is a merge function as the storage engine calls it. unreadable makes the error of a row whose values cannot be merged.
func Merger(name string, merge MergeFunc, unreadable func(key []byte, err error) error) *pebble.Merger {
	m := &merger{merge, unreadable}
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

// valueMerger gathers the values of one key. Those that it is given are good for the call only.
type valueMerger struct {
	merger *merger
	key    []byte
	// newer are values from the first on, older those before it, the oldest last: both as spans of data.
	newer, older []span
	data         []byte
	// values and out are space for merging.
	values [][]byte
	out    []byte
}

type span struct{ from, to int }

// valueMergers are used again: a flush merges a value for each of its rows.
var valueMergers = sync.Pool{New: func() any { return new(valueMerger) }} //nolint:gochecknoglobals // memory only

// maxIdleMerger is the most memory of a merger of values that is kept, in bytes.
const maxIdleMerger = 1 << 20

func (v *valueMerger) add(value []byte) span {
	from := len(v.data)
	v.data = append(v.data, value...)
	return span{from, len(v.data)}
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
	for _, spans := range [...][]span{v.older, v.newer} {
		for _, p := range spans {
			v.values = append(v.values, v.data[p.from:p.to])
		}
	}
	if len(v.values) == 1 {
		return v.values[0], v, nil
	}
	var err error
	if v.out, err = v.merger.merge(v.out[:0], v.key, v.values); err != nil {
		return nil, nil, v.merger.unreadable(slices.Clone(v.key), err)
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
