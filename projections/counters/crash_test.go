package counters

import (
	"fmt"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestDeletionContinuesAfterPowerCut cuts the power at every write of the deletion of a board or
// user with more than a hundred pins, whose items are in lists, while there are versions to drop.
// The deletion must continue where it was (I3).
func TestDeletionContinuesAfterPowerCut(t *testing.T) {
	for name, end := range map[string]events.Event{
		"board": {Kind: events.BoardDeleted, User: "ann", Board: "art"},
		"user":  {Kind: events.UserDeleted, User: "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			var pins, plays []events.Event
			for n := range 120 {
				item := fmt.Sprint(n % 60)
				pins = append(pins, newPinCreated("ann", fmt.Sprint(n), "art", item))
				plays = append(plays, events.Event{Kind: events.Reacted, User: "ann", Item: item})
			}

			history := [][]events.Event{pins, plays}
			for n := range 8 {
				history = append(history, []events.Event{newItemScored("8", int64(n)), newItemScored("9", int64(-n))})
			}
			history = append(history, []events.Event{end}, []events.Event{{Kind: events.Played, User: "bob", Item: "9"}})

			counts := conformance.CheckCrashes(t, func() projections.Projection { return New(DefaultSettings()) },
				envelopes(history, len(history)-2), store.Bounds{BatchBytes: 2 << 10, FlushBytes: 16 << 10})
			if counts.ImagesInsideEnvelope == 0 {
				t.Errorf("got %+v, want a crash inside an envelope", counts)
			}
		})
	}
}

// envelopes makes an envelope of each list of events. More than an hour passes before the one with
// the index late.
func envelopes(lists [][]events.Event, late int) (envs []*events.Envelope) {
	cursor := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start}
	for i, list := range lists {
		cursor.Seq++
		if i == late {
			cursor.LastTime += SessionLifetime + 1
		}
		env := &events.Envelope{}
		for slot, ev := range list {
			cursor.LastTime++
			ev.Seq = cursor.Seq
			ev.Slot = uint16(slot)
			ev.Time = cursor.LastTime
			env.Events = append(env.Events, ev)
			env.Kinds |= events.Kinds(ev.Kind)
		}
		env.Cursor = cursor
		envs = append(envs, env)
	}
	return envs
}
