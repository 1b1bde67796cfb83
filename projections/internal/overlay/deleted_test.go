package overlay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDeletedRowsAreForgotten writes and deletes random rows without a database, and compares the
// rows with a map.
func TestDeletedRowsAreForgotten(t *testing.T) {
	var o Overlay
	concat := func(dst, _ []byte, values [][]byte) ([]byte, error) {
		for _, v := range values {
			dst = append(dst, v...)
		}
		return dst, nil
	}
	o.Init(nil, 1<<20, concat)

	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	const written = 50_000
	for i := range written {
		key := fmt.Sprintf("%03d-%d", r.IntN(10), i)
		o.Set([]byte(key), []byte("a"))
		want[key] = "a"

		// Change a row that was written a short time before, and delete one that was written
		// earlier.
		if r.IntN(2) == 0 {
			o.Merge([]byte(key), []byte("b"))
			want[key] += "b"
		}
		for deleted := range maps.Keys(want) {
			if len(want) > 100 {
				o.Delete([]byte(deleted))
				delete(want, deleted)
			}
			break
		}
		o.ForgetDeleted()
		if atLeast := len(o.data) + len(o.spareData); o.Memory() < atLeast {
			t.Fatalf("got Memory %d, want at least the %d bytes of the rows and the spare buffer", o.Memory(), atLeast)
		}
	}
	if len(o.spareData) == 0 {
		t.Error("got an empty spare buffer, want one that was filled")
	}

	got := map[string]string{}
	var scans Scans
	it := o.Iter(nil, nil, &scans)
	for it.Next() {
		got[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}

	for key, value := range want {
		if found, ok, err := o.Get([]byte(key)); err != nil || !ok || string(found) != value {
			t.Errorf("%s: got %q, %v, %v, want %q", key, found, ok, err, value)
		}
	}
	if len(o.rows) > written/10 {
		t.Errorf("got %d rows in memory, of which %d exist, want at most %d", len(o.rows), len(want), written/10)
	}
}
