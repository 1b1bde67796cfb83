package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func newReject(seq uint64, slot int) events.Reject {
	return events.Reject{Seq: seq, Slot: slot, Data: []byte{1, 2, 3}, Rejection: events.Rejection{
		Index: slot, Reason: skeinv1.Reason_REASON_UNKNOWN_KIND, Field: "kind", Message: fmt.Sprintf("at %d", seq),
	}}
}

// TestLastRejectsAreKept checks that a store keeps the last rejects, counts all of them, and
// returns those after a number.
func TestLastRejectsAreKept(t *testing.T) {
	const n = store.MaxStoredRejects + 100
	envs := storetest.Envelopes(make([][]events.Event, n)...)
	for i, env := range envs {
		env.Rejects = []events.Reject{newReject(env.Seq(), i%5-1)}
	}
	s := storetest.OpenTally(t, store.Options{})
	list := func(after uint64, n int) ([]store.StoredReject, uint64) {
		t.Helper()
		kept, total, err := s.Rejects(after, n)
		if err != nil {
			t.Fatal(err)
		}
		return kept, total
	}

	if kept, total := list(0, 10); len(kept) != 0 || total != 0 {
		t.Fatalf("empty store: got %d of %d rejects, want none", len(kept), total)
	}

	if err := s.Fold(envs[:3]); err != nil {
		t.Fatal(err)
	}
	kept, total := list(1, 10)
	want := []store.StoredReject{{Number: 2, Reject: newReject(2, 0)}, {Number: 3, Reject: newReject(3, 1)}}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Fatalf("kept rejects (-want +got):\n%s", diff)
	}
	if total != 3 {
		t.Fatalf("got %d rejects in total, want 3", total)
	}

	// After many more, the first ones are no longer kept.
	if err := s.Fold(envs[3:]); err != nil {
		t.Fatal(err)
	}
	kept, total = list(0, 2)
	want = []store.StoredReject{{Number: 101, Reject: newReject(101, 99)}, {Number: 102, Reject: newReject(102, 0)}}
	want[0].Slot, want[0].Rejection.Index = -1, -1
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Fatalf("kept rejects (-want +got):\n%s", diff)
	}
	if total != n {
		t.Fatalf("got %d rejects in total, want %d", total, n)
	}
	if kept, _ := list(0, 1<<30); len(kept) != store.MaxStoredRejects || kept[len(kept)-1].Number != n {
		t.Errorf("got %d kept rejects, want %d, the last with number %d", len(kept), store.MaxStoredRejects, n)
	}

	for _, after := range []uint64{n, n + 1, 1<<64 - 1} {
		if kept, _ := list(after, 5); len(kept) != 0 {
			t.Errorf("got %d rejects after number %d, want none", len(kept), after)
		}
	}
	if st := s.Status(); st.Rejects != n {
		t.Errorf("got status with %d rejects, want %d", st.Rejects, n)
	}
}

// TestDeletionErasesUserFromEarlierRejects checks that the deletion of a user removes the data of
// all rejects before it that name the user, even in the envelope of the deletion. Rejects after it
// are about a new user with the same id.
func TestDeletionErasesUserFromEarlierRejects(t *testing.T) {
	envs := storetest.Envelopes(
		storetest.One(storetest.Follow("ann", "bob")),
		[]events.Event{storetest.Follow("bob", "eve"), {Kind: events.UserDeleted, User: "ann"}, storetest.Follow("ann", "bob")},
		storetest.One(storetest.Follow("ann", "eve")),
	)
	// The slots 1 and 3 of the second envelope are those of rejects.
	envs[1].Events[1].Slot = 2
	envs[1].Events[2].Slot = 4
	for _, at := range []struct{ envelope, slot int }{{0, 1}, {1, 1}, {1, 3}, {2, 1}} {
		reject := newReject(envs[at.envelope].Seq(), at.slot)
		reject.Data = []byte("about ann")
		reject.Rejection.Message = "ann must be good"
		envs[at.envelope].Rejects = append(envs[at.envelope].Rejects, reject)
	}

	// With a small batch, the store commits inside of the envelopes, too.
	for name, bounds := range map[string]store.Bounds{"one commit": {}, "many commits": {BatchBytes: 1}} {
		t.Run(name, func(t *testing.T) {
			s := storetest.OpenTally(t, store.Options{Bounds: bounds})
			if err := s.Fold(envs); err != nil {
				t.Fatal(err)
			}
			kept, _, err := s.Rejects(0, 10)
			if err != nil {
				t.Fatal(err)
			}

			got := map[string]string{}
			for _, r := range kept {
				got[fmt.Sprintf("%d/%d", r.Seq, r.Slot)] = string(r.Data) + ": " + r.Rejection.Message
			}
			const whole = "about ann: ann must be good"
			want := map[string]string{"1/1": ": ", "2/1": ": ", "2/3": whole, "3/1": whole}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("data and messages of the kept rejects (-want +got):\n%s", diff)
			}
		})
	}
}
