package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// twoThirdsOfPartitions returns two thirds of the partitions.
func twoThirdsOfPartitions() (s events.Partitions) {
	for p := range 256 {
		if p%3 != 1 {
			s.Add(uint8(p))
		}
	}
	return s
}

// In a store that holds some partitions, exactly the damaged rows are found and repaired, and rows
// of other partitions are removed.
func TestRepairOfAStoreOfSomePartitions(t *testing.T) {
	envs := memlog.NewWorld(1, 200).Envelopes(800)
	held := twoThirdsOfPartitions()
	forEachProjection(t, func(t *testing.T, i int) {
		f := newPartitionedTestStore(t, i, envs, &held)
		f.checkEqual()
		want := conformance.RowsOf(t, f.store)

		// Damage some rows, and add rows of partitions that the store does not hold.
		damaged := len(f.corrupt(7, 6))
		f.damage(func(db *pebble.DB) (err error) {
			for _, row := range conformance.Straight(t, newProjection(i), envs) {
				p := projections.PartitionOf(newProjection(i), row.Key)
				if p == projections.StoreWide || held.Has(uint8(p)) {
					continue
				}

				// A few such rows are enough.
				err = errors.Join(err, db.Set(row.Key, row.Value, nil))
				damaged++
				if damaged%20 == 0 {
					break
				}
			}
			return err
		})

		r, err := verify.Repair(t.Context(), f.store, f.options())
		if err != nil {
			t.Fatal(err)
		}
		if !r.Equal || r.Differences != uint64(damaged) || r.Repaired != uint64(damaged) {
			t.Fatalf("got %v with %d differences and %d repaired rows, expected an equal store after %d repaired rows",
				r, r.Differences, r.Repaired, damaged)
		}
		conformance.RowsOf(t, f.store).MustEqual(t, want, "after the repair")
		if r.Rows > uint64(len(want)+damaged) {
			t.Errorf("got %d compared rows, expected at most %d", r.Rows, len(want)+damaged)
		}
	})
}

// A verification of a partition that the store does not hold is refused. The partition would seem
// to have lost all its rows.
func TestPartitionThatIsNotHeldIsRefused(t *testing.T) {
	held := twoThirdsOfPartitions()
	f := newPartitionedTestStore(t, 0, memlog.NewWorld(1, 20).Envelopes(50), &held)

	o := f.options()
	var partitions events.Partitions
	partitions.Add(3)
	o.Partitions = &partitions
	if r, err := verify.Verify(t.Context(), f.store, o); err != nil || !r.Equal {
		t.Errorf("partition 3: got %v and %v, expected equal rows", r, err)
	}

	partitions.Add(4)
	if _, err := verify.Verify(t.Context(), f.store, o); !errors.Is(err, verify.ErrNotHeld) || !strings.Contains(err.Error(), ": 4") {
		t.Errorf("partition 4: got %v, expected ErrNotHeld with its number", err)
	}
}

// resizedStore is a store that is replaced by another one after a number of views.
type resizedStore struct {
	*store.Store
	viewsLeft *int // negative once the store is replaced
	next      *store.Store
}

// View implements verify.Store.
func (s resizedStore) View() (*projections.View, error) {
	*s.viewsLeft--
	if *s.viewsLeft < 0 {
		return s.next.View()
	}
	return s.Store.View()
}

// Repair implements verify.Store.
func (s resizedStore) Repair(ctx context.Context, heal func(events.Cursor, projections.Reader, *store.Repair) error) error {
	if *s.viewsLeft < 0 {
		return s.next.Repair(ctx, heal)
	}
	return s.Store.Repair(ctx, heal)
}

// If a generation of other partitions has replaced the one with which a verification began, the
// verification fails and a repair writes nothing.
func TestResizeEndsVerification(t *testing.T) {
	held := twoThirdsOfPartitions()
	envs := memlog.NewWorld(1, 20).Envelopes(50)
	next := newPartitionedTestStore(t, 0, envs, &events.Partitions{})
	for views := 1; views < 5; views++ {
		f := newPartitionedTestStore(t, 0, envs, &held)
		f.corrupt(3, 4)

		rowsBefore := conformance.RowsOf(t, next.store)
		viewsLeft := views
		_, err := verify.Repair(t.Context(), resizedStore{f.store, &viewsLeft, next.store}, f.options())
		const wantErr = "the store holds other partitions than when the verification began"
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("resized after %d views: got the error %v, expected %q", views, err, wantErr)
		}
		conformance.RowsOf(t, next.store).MustEqual(t, rowsBefore, "the other generation")
	}
}
