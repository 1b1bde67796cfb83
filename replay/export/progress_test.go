package export_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/export"
)

// The progress of an export is in bytes or events if the size of the log is known. If a few
// envelopes contain nearly all events, the number of envelopes says nothing.
func TestProgressOfUnevenEnvelopes(t *testing.T) {
	const large, small = 10, 400 // numbers of envelopes
	const eventCount = large*events.MaxEnvelopeEvents + small

	var history []*events.Envelope
	for i := range large + small {
		n := 1
		if i < large {
			n = events.MaxEnvelopeEvents
		}

		env := &events.Envelope{}
		for j := range n {
			ev, rejection := events.FromProto(&skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{
				UserId: fmt.Sprintf("user-%d", i), ItemId: fmt.Sprintf("item-%d", j),
			}}})
			if rejection != nil {
				t.Fatalf("got the rejection %v of an event, expected none", rejection)
			}
			env.Events = append(env.Events, ev)
		}
		history = append(history, env)
	}

	p := publishHistory(t, history)
	head, err := p.log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	// exportAll exports the events. It returns the unit of the progress, and which share of the work
	// was done when half of the events were exported, and at the end.
	exportAll := func(r export.Range) (unit string, middle, end float64) {
		var progress replay.Progress
		shareDone := func() float64 {
			now := progress.Now()
			unit = now.Unit
			return float64(now.Done) / float64(now.Total)
		}

		r.After = export.Earliest
		r.Progress = &progress
		fromLog := export.FromLog(p.log, p.hub, r)
		exported := 0
		fromLogCounting := func(ctx context.Context, emit func(*export.Event) error) error {
			return fromLog(ctx, func(ev *export.Event) error {
				exported++
				if exported == eventCount/2 {
					middle = shareDone()
				}
				return emit(ev)
			})
		}

		_, err := export.Events(t.Context(), new(bytes.Buffer), fromLogCounting, export.EventsOptions{Format: export.NDJSON})
		if err != nil {
			t.Fatal(err)
		}
		end = shareDone()
		return unit, middle, end
	}

	// isWithin is false for the share of an unknown total, which is not a number.
	isWithin := func(share, least, most float64) bool { return least <= share && share <= most }
	for _, c := range []struct {
		r                    export.Range
		wantUnit             string
		minMiddle, maxMiddle float64
		minEnd, maxEnd       float64
	}{
		// The progress in bytes is not exact.
		{export.Range{LogBytes: uint64(head.Bytes)}, export.Bytes, 0.4, 0.6, 0.8, 1.2},
		{export.Range{LogEvents: eventCount}, export.LogEvents, 0.4, 0.6, 1, 1},
		// With neither size, the progress is in envelopes.
		{export.Range{}, export.Envelopes, 0, 0.05, 1, 1},
	} {
		unit, middle, end := exportAll(c.r)
		if unit != c.wantUnit {
			t.Errorf("got the progress in %s, expected %s", unit, c.wantUnit)
		}
		if !isWithin(middle, c.minMiddle, c.maxMiddle) {
			t.Errorf("progress in %s: got %.2f in the middle, expected %.2f to %.2f", c.wantUnit, middle, c.minMiddle, c.maxMiddle)
		}
		if !isWithin(end, c.minEnd, c.maxEnd) {
			t.Errorf("progress in %s: got %.2f at the end, expected %.2f to %.2f", c.wantUnit, end, c.minEnd, c.maxEnd)
		}
	}
}
