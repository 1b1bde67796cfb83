package verify

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

// TestEveryRowOfOnePartitionIsCompared walks over the rows of a store as a comparison of one partition
// does, for each of all partitions. The walk jumps over rows of other partitions, and must not jump
// over a row of this one.
func TestEveryRowOfOnePartitionIsCompared(t *testing.T) {
	envs := memlog.NewWorld(2, 2000).Envelopes(2000)
	step := 1
	if testing.Short() {
		step = 5 // the first partition is 0 and the last one 255
	}
	for _, p := range all.All(all.Settings{}) {
		t.Run(p.Name(), func(t *testing.T) {
			s := conformance.Open(t, vfs.NewMem(), p, store.Bounds{})
			conformance.Fold(t, s, envs)
			var keys [][]byte
			want := map[int][][]byte{} // the keys of each partition
			for _, row := range conformance.RowsOf(t, s) {
				n := projections.PartitionOf(p, row.Key)
				keys = append(keys, row.Key)
				want[n] = append(want[n], row.Key)
			}
			conformance.Close(t, s)

			for n := 0; n < events.NumPartitions; n += step {
				var selected events.Partitions
				selected.Add(uint8(n))
				got := walkWantedKeys(newRowFilter(&Options{projection: p, Partitions: &selected}), keys)
				// cmp compares keys byte by byte, which is slow, so it only describes differences.
				if !slices.EqualFunc(want[n], got, bytes.Equal) {
					t.Errorf("keys of partition %d (-want +got):\n%s", n, cmp.Diff(want[n], got))
				}
			}
			if len(want) < events.NumPartitions/2 {
				t.Errorf("%d partitions have rows, want at least half of all", len(want))
			}
		})
	}
}

// walkWantedKeys returns the keys at which a comparison with the filter stops. keys are in ascending
// order.
func walkWantedKeys(f *rowFilter, keys [][]byte) (wanted [][]byte) {
	for at := 0; at < len(keys); {
		key := keys[at]
		if f.wants(key) {
			wanted = append(wanted, key)
			at++
			continue
		}

		next := f.nextWantedKey(key)
		if next == nil {
			break
		}
		at, _ = slices.BinarySearchFunc(keys, next, bytes.Compare)
	}
	return wanted
}
