package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestCheckCallRejectsMalformedAndReusedIDs demands that CheckCall rejects malformed events, and
// events with the event id of an earlier good event of the same acting user and kind.
func TestCheckCallRejectsMalformedAndReusedIDs(t *testing.T) {
	good, rejected := CheckCall([]*skeinv1.Event{
		newLike("a", "1", "r"), newLike("b", "1", "r"), newLike("a", "2", ""),
		{},
		newLike("a", "2", ""), newLike("a", "2", "r"),
		{EventId: "r", Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "a", ItemId: "1"}}},
		newMalformedLike("c", "s"), newLike("c", "1", "s"),
	})
	if len(good) != 6 || good[2].Index != 2 || good[3].Index != 4 || good[5].Index != 8 || good[5].User != "c" {
		t.Errorf("good events: got %+v, want those at 0, 1, 2, 4, 6 and 8", good)
	}
	if len(rejected) != 3 || rejected[0].Index != 3 || rejected[1].Index != 5 || rejected[2].Index != 7 {
		t.Fatalf("rejected events: got %+v, want those at 3, 5 and 7", rejected)
	}
	if got, want := rejected[1].Reason, skeinv1.Reason_REASON_EVENT_ID_REUSED; got != want {
		t.Errorf("reason for event 5: got %v, want %v", got, want)
	}
}

// TestCallRejectsBackfillsThatCannotCount calls CheckCall with backfills of one source and kind
// whose offsets do not rise. The log would ignore such a backfill, so the call rejects it.
func TestCallRejectsBackfillsThatCannotCount(t *testing.T) {
	liked := func(source string, offset uint64) *skeinv1.Event {
		ev := newLike("a", "1", "")
		ev.Source = source
		ev.Offset = offset
		ev.OccurredAt = timestamppb.New(time.Unix(1e9, 0))
		return ev
	}

	malformed := liked("old", 9)
	malformed.OccurredAt = nil
	unliked := newLike("a", "1", "")
	good, rejected := CheckCall([]*skeinv1.Event{
		liked("old", 3), malformed, liked("old", 3), liked("old", 4), liked("older", 1), unliked, liked("old", 2),
	})

	var got []string
	for _, r := range rejected {
		got = append(got, fmt.Sprintf("%d %s: %s", r.Index, r.Reason, r.Message))
	}
	want := []string{
		"1 REASON_INVALID_BACKFILL: occurred_at must be present in a backfill",
		"2 REASON_INVALID_BACKFILL: offset is 3: it must be above 3, the offset of events[0] of the same source and kind",
		"6 REASON_INVALID_BACKFILL: offset is 2: it must be above 4, the offset of events[3] of the same source and kind",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rejected events (-want +got):\n%s", diff)
	}
	if len(good) != 4 {
		t.Errorf("good events: got %d, want 4", len(good))
	}
}
