package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A call refuses malformed events, and those with the event id of an earlier good one of the same user and kind.
func TestCheckCallRejectsMalformedAndReusedIDs(t *testing.T) {
	good, refused := CheckCall([]*skeinv1.Event{
		newLike("a", "1", "r"), newLike("b", "1", "r"), newLike("a", "2", ""),
		{},
		newLike("a", "2", ""), newLike("a", "2", "r"),
		{EventId: "r", Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "a", ItemId: "1"}}},
		newMalformedLike("c", "s"), newLike("c", "1", "s"),
	})
	if len(good) != 6 || good[2].Index != 2 || good[3].Index != 4 || good[5].Index != 8 || good[5].User != "c" {
		t.Errorf("good: %+v", good)
	}
	if len(refused) != 3 || refused[0].Index != 3 || refused[1].Index != 5 || refused[2].Index != 7 ||
		refused[1].Reason != skeinv1.Reason_REASON_EVENT_ID_REUSED {
		t.Errorf("refused: %+v", refused)
	}
}

// TestCallRejectsBackfillsThatCannotCount: of two backfills of one source and kind the log ignores the later one unless its offset is higher.
func TestCallRejectsBackfillsThatCannotCount(t *testing.T) {
	liked := func(source string, offset uint64) *skeinv1.Event {
		ev := newLike("a", "1", "")
		ev.Source, ev.Offset, ev.OccurredAt = source, offset, timestamppb.New(time.Unix(1e9, 0))
		return ev
	}
	malformed := liked("old", 9)
	malformed.OccurredAt = nil
	unliked := newLike("a", "1", "")
	good, refused := CheckCall([]*skeinv1.Event{
		liked("old", 3), malformed, liked("old", 3), liked("old", 4), liked("older", 1), unliked, liked("old", 2),
	})

	var got []string
	for _, r := range refused {
		got = append(got, fmt.Sprintf("%d %s: %s", r.Index, r.Reason, r.Message))
	}
	expected := []string{
		"1 REASON_INVALID_BACKFILL: occurred_at must be present in a backfill",
		"2 REASON_INVALID_BACKFILL: offset is 3: it must be above 3, the offset of events[0] of the same source and kind",
		"6 REASON_INVALID_BACKFILL: offset is 2: it must be above 4, the offset of events[3] of the same source and kind",
	}
	if diff := cmp.Diff(expected, got); diff != "" || len(good) != 4 {
		t.Errorf("%d good events, expected 4; refusals (-expected +got):\n%s", len(good), diff)
	}
}
