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

// otherNode answers for one owner, whose rows the state is said to lack. It answers about pins and
// outboxes from two views, which may be of different positions.
type otherNode struct {
	RemoteLookup
	t              *testing.T
	owner          string
	pins, outboxes *Queries
}

func (o *otherNode) Holds(home string) bool { return home != o.owner }
func (*otherNode) Unresolved() bool         { return false }
func (*otherNode) Full() bool               { return false }

func (o *otherNode) Pin(owner, id string) (*Pin, bool) {
	pin, lives, err := o.pins.Pin(owner, id)
	if err != nil {
		o.t.Error(err)
	}
	if !lives {
		return nil, true
	}
	return &pin, true
}

func (o *otherNode) Outbox(owner string, board *string, from []byte, n int) ([]Pin, []byte, bool) {
	pins, next, err := o.outboxes.Outbox(o.t.Context(), owner, board, from, n)
	if err != nil {
		o.t.Error(err)
	}
	return pins, next, true
}

// TestExplainAcceptsPositionsOfOtherNodes lets another node answer at other positions than that of
// the state. A pin that lives at only some of these positions is no corruption.
func TestExplainAcceptsPositionsOfOtherNodes(t *testing.T) {
	w := newCachedStore(t, 39)
	owner := cacheOwner(0)
	created := events.Event{Kind: events.PinCreated, User: owner, Pin: "p", Item: "i"}
	empty := w.view(t)
	defer empty.Close()
	w.fold(t, created)
	living := w.view(t)
	defer living.Close()
	w.fold(t, events.Event{Kind: events.PinDeleted, User: owner, Pin: "p"})
	deleted := w.view(t)
	defer deleted.Close()

	for _, c := range []struct {
		name                  string
		state, pins, outboxes *projections.View
		wantAbsence           AbsenceReasons
	}{
		{"one position", living, living, living, 0},
		{"created after the state", empty, living, living, AbsenceNotLiving},
		{"deleted before the answer about the outbox", living, living, deleted, AbsenceNotLiving},
		{"deleted before the answer about the pin", living, deleted, living, AbsenceNotLiving},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := &otherNode{t: t, owner: owner, pins: Query(c.pins), outboxes: Query(c.outboxes)}
			q := Query(c.state).WithRemote(other)
			got, err := q.Explain(t.Context(), Feed{Reader: "ann"}, owner, "p")
			if err != nil || got.Absence != c.wantAbsence {
				t.Errorf("got the reasons %b and error %v, want %b", got.Absence, err, c.wantAbsence)
			}
			if isInFeed := c.wantAbsence == 0; (got.Pin != nil) != isInFeed {
				t.Errorf("pin: got %+v, want one: %v", got.Pin, isInFeed)
			}
		})
	}
}
