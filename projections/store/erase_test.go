package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// edgeEraser is a Tally that erases the edges of a deleted user with [projections.Batch.EraseRows].
type edgeEraser struct {
	*tally.Tally

	// erase is called for each edge of the deleted user.
	erase func(b *projections.Batch, key []byte) error
}

func (e *edgeEraser) Apply(ev events.Event, b *projections.Batch) error {
	if ev.Kind != events.UserDeleted {
		return e.Tally.Apply(ev, b)
	}
	prefix := tally.EdgePrefix(ev.User)
	return b.EraseRows(prefix, func(rest []byte) error {
		return e.erase(b, slices.Concat(prefix, rest))
	})
}

// TestEraseRowsMeetsEachRowOnce erases more rows than EraseRows reads at once, with a commit after
// each chunk. EraseRows must call its argument once for each row, in key order. Rows that stay must
// not be met again: EraseRows continues behind the rows that it has met, so its time does not grow
// with the square of their number.
func TestEraseRowsMeetsEachRowOnce(t *testing.T) {
	const edges = 1000
	for _, test := range []struct {
		name string
		// nested makes each call of erase call EraseRows, too.
		deletes, nested bool
	}{
		{name: "rows are deleted", deletes: true},
		{name: "rows stay"},
		{name: "calls are nested", deletes: true, nested: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			p := &edgeEraser{Tally: tally.New()}
			p.erase = func(b *projections.Batch, key []byte) error {
				got = append(got, string(key))
				if test.deletes {
					b.Delete(key)
				}
				if !test.nested {
					return nil
				}
				other := tally.EdgePrefix("other")
				return b.EraseRows(other, func(rest []byte) error {
					b.Delete(slices.Concat(other, rest))
					return nil
				})
			}
			s := storetest.OpenTally(t, store.Options{Projection: p, Bounds: store.Bounds{BatchBytes: 1}})

			var want []string
			list := storetest.One(storetest.Follow("other", "ann"))
			for i := range edges {
				peer := fmt.Sprintf("p%03d", i)
				list = append(list, storetest.Follow("ann", peer))
				want = append(want, string(events.AppendID(tally.EdgePrefix("ann"), peer)))
			}
			deletion := storetest.One(events.Event{Kind: events.UserDeleted, User: "ann"})
			if err := s.Fold(storetest.Envelopes(list, deletion)); err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows that were met (-want +got):\n%s", diff)
			}
			wantLeft, wantOther := edges, 1
			if test.deletes {
				wantLeft = 0
			}
			if test.nested {
				wantOther = 0
			}
			if n := countEdges(t, s, "ann"); n != wantLeft {
				t.Errorf("%d edges of the deleted user are left, want %d", n, wantLeft)
			}
			if n := countEdges(t, s, "other"); n != wantOther {
				t.Errorf("%d edges of another user are left, want %d", n, wantOther)
			}
		})
	}
}

// countEdges returns the number of edges of a user.
func countEdges(t *testing.T, s *store.Store, user string) (n int) {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	prefix := tally.EdgePrefix(user)
	it := v.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		n++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}
