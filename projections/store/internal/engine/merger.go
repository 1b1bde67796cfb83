package engine

import (
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// MergeFunc merges the values of a key, at least two, the oldest first. It appends the result to dst, and must be associative: the
// storage engine merges neighbors in any grouping.
type MergeFunc func(dst, key []byte, values [][]byte) ([]byte, error)

type merger struct {
	merge      MergeFunc
	unreadable func(key []byte, err error) error
}

// Merger returns a merge function in the form that the storage engine calls. unreadable makes the error for a row whose values cannot be
// merged.
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

// valueMerger collects the values of one key. It copies them into data, since the engine's slices are valid during the call only.
type valueMerger struct {
	merger *merger
	key    []byte
	// newer are the first value and those newer than it, in order. older are those before the first, the oldest last.
	newer, older []span
	data         []byte
	// values and out are scratch memory of Finish.
	values [][]byte
	out    []byte
}

// span is data[from:to].
type span struct{ from, to int }

// valueMergers is a pool, because a flush needs a valueMerger for each of its merged rows.
var valueMergers = sync.Pool{New: func() any { return new(valueMerger) }} //nolint:gochecknoglobals // memory only

// maxIdleMerger is the largest valueMerger that goes back to the pool, in bytes of its buffers.
const maxIdleMerger = 1 << 20

func (v *valueMerger) add(value []byte) span {
	from := len(v.data)
	v.data = append(v.data, value...)
	return span{from, len(v.data)}
}

// MergeNewer adds a value that is newer than all values so far.
func (v *valueMerger) MergeNewer(value []byte) error {
	v.newer = append(v.newer, v.add(value))
	return nil
}

// MergeOlder adds a value that is older than all values so far.
func (v *valueMerger) MergeOlder(value []byte) error {
	v.older = append(v.older, v.add(value))
	return nil
}

// Finish returns the merged value, valid until the returned closer is closed.
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

// Close returns the memory of the result to the pool.
func (v *valueMerger) Close() error {
	if cap(v.data)+cap(v.out) <= maxIdleMerger {
		*v = valueMerger{
			key: v.key[:0], newer: v.newer[:0], older: v.older[:0], data: v.data[:0], values: v.values[:0], out: v.out[:0],
		}
		valueMergers.Put(v)
	}
	return nil
}
