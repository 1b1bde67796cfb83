package bench

import (
	"bytes"
	"testing"

	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/seen"
)

// TestMergerOrder: values come to the projection oldest first, in whatever order the storage engine meets them.
func TestMergerOrder(t *testing.T) {
	v := &valueMerger{key: []byte("k"), values: [][]byte{[]byte("c")}, merge: func(dst, key []byte, values [][]byte) ([]byte, error) {
		return append(append(dst, key...), bytes.Join(values, nil)...), nil
	}}
	if got, _, err := v.Finish(true); err != nil || string(got) != "c" {
		t.Errorf("one value: %q, %v", got, err)
	}
	reused := []byte("b")
	for _, err := range []error{v.MergeOlder(reused), v.MergeNewer([]byte("d")), v.MergeNewer([]byte("e"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	reused[0] = 'a' // what is handed in is good for the call only
	if err := v.MergeOlder(reused); err != nil {
		t.Fatal(err)
	}
	if got, _, err := v.Finish(true); err != nil || string(got) != "kabcde" {
		t.Errorf("merged %q, %v", got, err)
	}
}

func TestMergerOf(t *testing.T) {
	if m := mergerOf(graph.New()); m != nil {
		t.Errorf("the graph is merged by %s", m.Name)
	}
	if m := mergerOf(seen.New(seen.DefaultSettings())); m == nil || m.Name != "skein.seen.1" {
		t.Errorf("what users have seen is merged by %+v", m)
	}
}
