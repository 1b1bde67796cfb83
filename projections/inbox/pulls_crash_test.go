package inbox_test

import (
	"strconv"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestPullRowOfOwnerReplacesThoseOfBoardsAfterPowerCut lets a reader who follows very many boards of
// a pulled owner begin to follow the owner. Whenever the power is cut, the pull row of the owner
// must replace those of the boards (I8).
func TestPullRowOfOwnerReplacesThoseOfBoardsAfterPowerCut(t *testing.T) {
	var boards []events.Event
	for i := range 600 {
		boards = append(boards, events.Event{Kind: events.BoardFollowed, User: "ann", Peer: "bob", Board: strconv.Itoa(i)})
	}
	envs := storetest.Envelopes(boards, []events.Event{{Kind: events.UserFollowed, User: "ann", Peer: "bob"}})

	settings := inbox.DefaultSettings()
	settings.Threshold = 0 // an owner with a follower is pulled
	counts := conformance.CheckCrashes(t, func() projections.Projection { return inbox.New(settings) },
		envs, store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10})
	if counts.ImagesInsideEnvelope == 0 {
		t.Errorf("got %+v, want a crash inside an envelope", counts)
	}
}
