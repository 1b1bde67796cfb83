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

func rejected(seq uint64, slot int) events.Reject {
	return events.Reject{Seq: seq, Slot: slot, Data: []byte{1, 2, 3}, Rejection: events.Rejection{
		Index: slot, Reason: skeinv1.Reason_REASON_UNKNOWN_KIND, Field: "kind", Message: fmt.Sprintf("at %d", seq),
	}}
}

func TestLastRejectsAreKept(t *testing.T) {
	const n = store.KeptRejects + 100
	envs := storetest.Envelopes(make([][]events.Event, n)...)
	for i, env := range envs {
		env.Rejects = []events.Reject{rejected(env.Seq(), i%5-1)}
	}
	s := storetest.OpenTally(t, store.Options{})
	list := func(after uint64, n int) ([]store.KeptReject, uint64) {
		t.Helper()
		kept, total, err := s.Rejects(after, n)
		if err != nil {
			t.Fatal(err)
		}
		return kept, total
	}
	if kept, total := list(0, 10); len(kept) != 0 || total != 0 {
		t.Fatalf("%d of %d in an empty store", len(kept), total)
	}
	if err := s.Fold(envs[:3]); err != nil {
		t.Fatal(err)
	}
	kept, total := list(1, 10)
	want := []store.KeptReject{{Number: 2, Reject: rejected(2, 0)}, {Number: 3, Reject: rejected(3, 1)}}
	if diff := cmp.Diff(want, kept); diff != "" || total != 3 {
		t.Fatalf("total %d:\n%s", total, diff)
	}
	if err := s.Fold(envs[3:]); err != nil {
		t.Fatal(err)
	}
	// The first ones are no longer kept.
	kept, total = list(0, 2)
	want = []store.KeptReject{{Number: 101, Reject: rejected(101, 99)}, {Number: 102, Reject: rejected(102, 0)}}
	want[0].Slot, want[0].Rejection.Index = -1, -1
	if diff := cmp.Diff(want, kept); diff != "" || total != n {
		t.Fatalf("total %d:\n%s", total, diff)
	}
	if kept, _ := list(0, 1<<30); len(kept) != store.KeptRejects || kept[len(kept)-1].Number != n {
		t.Errorf("%d kept", len(kept))
	}
	for _, after := range []uint64{n, n + 1, 1<<64 - 1} {
		if kept, _ := list(after, 5); len(kept) != 0 {
			t.Errorf("%d after the last", len(kept))
		}
	}
	if st := s.Status(); st.Rejects != n {
		t.Errorf("status: %d rejects", st.Rejects)
	}
}
