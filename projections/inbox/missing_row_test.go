package inbox

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// stateWithoutOutboxes is a corrupt state: the rows of all outboxes are missing, and the pins are
// there.
type stateWithoutOutboxes struct{ State }

func (s stateWithoutOutboxes) Iter(lower, upper []byte) projections.Iterator {
	return iteratorWithoutOutboxes{s.State.Iter(lower, upper)}
}

type iteratorWithoutOutboxes struct{ projections.Iterator }

func (i iteratorWithoutOutboxes) Next() bool { return i.skipOutboxes(i.Iterator.Next()) }

func (i iteratorWithoutOutboxes) SeekGE(key []byte) bool {
	return i.skipOutboxes(i.Iterator.SeekGE(key))
}

func (i iteratorWithoutOutboxes) skipOutboxes(more bool) bool {
	for more && projections.Tag(i.Key()[2]) == tagOutbox {
		more = i.Iterator.Next()
	}
	return more
}

// TestExplainFindsMissingOutboxRow: a pin that the reader may see, and that is missing from the
// feed, is corruption. No explanation may take it for a pin whose item is shown already.
func TestExplainFindsMissingOutboxRow(t *testing.T) {
	w := newCachedStore(t, 39)
	w.fold(t, events.Event{Kind: events.PinCreated, User: cacheOwner(0), Pin: "p", Item: "i"})
	v := w.view(t)
	defer v.Close()

	for name, onePerItem := range map[string]bool{"every pin": false, "one per item": true} {
		t.Run(name, func(t *testing.T) {
			f := Feed{Reader: "ann", OnePerItem: onePerItem}
			explanation, err := Query(v).Explain(t.Context(), f, cacheOwner(0), "p")
			if err != nil || explanation.Rank != 1 {
				t.Fatalf("with the row: got %+v, %v; want rank 1", explanation, err)
			}

			explanation, err = Query(stateWithoutOutboxes{v}).Explain(t.Context(), f, cacheOwner(0), "p")
			if !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("without the row: got %+v, %v; want %v", explanation, err, projections.ErrCorrupt)
			}
		})
	}
}
