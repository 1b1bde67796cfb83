package events

import (
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A call refuses malformed events, and those with the event id of an earlier good one of the same user and kind.
func TestCheckCall(t *testing.T) {
	good, refused := CheckCall([]*skeinv1.Event{
		likedMsg("a", "1", "r"), likedMsg("b", "1", "r"), likedMsg("a", "2", ""),
		{},
		likedMsg("a", "2", ""), likedMsg("a", "2", "r"),
		{EventId: "r", Kind: &skeinv1.Event_Unliked{Unliked: &skeinv1.Unliked{UserId: "a", ItemId: "1"}}},
		malformedMsg("c", "s"), likedMsg("c", "1", "s"),
	})
	if len(good) != 6 || good[2].Index != 2 || good[3].Index != 4 || good[5].Index != 8 || good[5].User != "c" {
		t.Errorf("good: %+v", good)
	}
	if len(refused) != 3 || refused[0].Index != 3 || refused[1].Index != 5 || refused[2].Index != 7 ||
		refused[1].Reason != skeinv1.Reason_REASON_EVENT_ID_REUSED {
		t.Errorf("refused: %+v", refused)
	}
}
