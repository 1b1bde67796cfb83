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

// The progress of an export is in bytes. If a few envelopes contain nearly all events, the number
// of envelopes says nothing.
func TestProgressOfUnevenEnvelopes(t *testing.T) {
	const large, small = 10, 400

	var history []*events.Envelope
	for i := range large + small {
		n := 1
		if i < large {
			n = events.MaxEnvelopeEvents
		}

		env := &events.Envelope{}
		for j := range n {
			ev, refused := events.FromProto(&skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{
				UserId: fmt.Sprintf("user-%d", i), ItemId: fmt.Sprintf("item-%d", j),
			}}})
			if refused != nil {
				t.Fatal(refused)
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

	// run exports the events. It returns the unit of the progress, and its shares when half of the
	// events were exported and at the end.
	const all = large*events.MaxEnvelopeEvents + small
	run := func(r export.Range) (unit string, half float64, end float64) {
		var at replay.Progress
		share := func() float64 {
			now := at.Now()
			unit = now.Unit
			return float64(now.Done) / float64(now.Total)
		}

		r.After, r.Progress = export.Earliest, &at
		from, n := export.FromLog(p.log, p.hub, r), 0
		counting := func(ctx context.Context, emit func(*export.Event) error) error {
			return from(ctx, func(ev *export.Event) error {
				if n++; n == all/2 {
					half = share()
				}
				return emit(ev)
			})
		}

		if _, err := export.Events(t.Context(), new(bytes.Buffer), counting, export.EventsOptions{Format: export.NDJSON}); err != nil {
			t.Fatal(err)
		}
		return unit, half, share()
	}

	unit, half, end := run(export.Range{LogBytes: uint64(head.Bytes)})
	if unit != export.Bytes || half < 0.4 || half > 0.6 || end < 0.8 || end > 1.2 {
		t.Errorf("the progress in %s was %.2f in the middle and %.2f at the end", unit, half, end)
	}
	unit, half, end = run(export.Range{LogEvents: all})
	if unit != export.LogEvents || half < 0.4 || half > 0.6 || end != 1 {
		t.Errorf("the progress in %s was %.2f in the middle and %.2f at the end", unit, half, end)
	}
	if unit, half, end = run(export.Range{}); unit != export.Envelopes || half > 0.05 || end != 1 {
		t.Errorf("the progress in %s was %.2f in the middle and %.2f at the end", unit, half, end)
	}
}
