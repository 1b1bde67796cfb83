package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/export"
)

// publishedLog is a log with a hub that runs.
type publishedLog struct {
	log  *eventlog.Log
	hub  *eventlog.Hub
	envs []*events.Envelope // as a reader receives them
}

// publishHistory makes a log from the events of a history, each in an envelope of its own.
func publishHistory(t *testing.T, history []*events.Envelope) *publishedLog {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	log, err := eventlog.Open(ctx, eventlog.Config{Ephemeral: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	p := &publishedLog{log: log, hub: eventlog.NewHub(log, eventlog.HubOptions{})}
	running := make(chan error, 1)
	go func() { running <- p.hub.Run(ctx) }()
	t.Cleanup(func() {
		if err := errors.Join(log.Close(ctx), <-running); err != nil {
			t.Errorf("close of the log: got %v, expected no error", err)
		}
	})

	// Publish the events.
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range history {
		var evs []*skeinv1.Event
		for _, ev := range env.Events {
			evs = append(evs, ev.Proto())
		}
		if len(evs) == 0 {
			continue
		}
		if _, err := publisher.Publish(ctx, evs, eventlog.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	// Read the log.
	head, err := log.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := p.hub.Subscribe(log.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for len(p.envs) == 0 || p.envs[len(p.envs)-1].Seq() < head.Last {
		envs, err := sub.Next(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		p.envs = append(p.envs, envs...)
	}

	return p
}

// allEvents returns all events of the log.
func (p *publishedLog) allEvents() (evs []events.Event) {
	for _, env := range p.envs {
		evs = append(evs, env.Events...)
	}
	return evs
}

// mustExport exports events. By default, the range begins at the start of the log.
func (p *publishedLog) mustExport(t *testing.T, r export.Range, o export.EventsOptions) []byte {
	t.Helper()
	if r.After == "" {
		r.After = export.Earliest
	}

	var out bytes.Buffer
	counts, err := export.Events(t.Context(), &out, export.FromLog(p.log, p.hub, r), o)
	if err != nil {
		t.Fatal(err)
	}
	lines := uint64(bytes.Count(out.Bytes(), []byte("\n")))
	if o.Format == export.NDJSON && counts.Rows != lines {
		t.Errorf("got a count of %d rows, expected %d", counts.Rows, lines)
	}

	return out.Bytes()
}

// checkObjects checks that NDJSON contains these events, and no others.
func checkObjects(t *testing.T, data []byte, want []events.Event) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(data) == 0 {
		lines = nil
	}
	if len(lines) != len(want) {
		t.Fatalf("got %d events, expected %d", len(lines), len(want))
	}

	for i, l := range lines {
		var m skeinv1.WatchResponse
		if err := protojson.Unmarshal(l, &m); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m.GetEvent(), want[i].Proto()) || m.GetEventTime().AsTime() != want[i].Time.Time() {
			t.Fatalf("event %d: got %v, expected %v", i, &m, want[i].Proto())
		}
	}
}

// describeEvent describes an event in the form of the columns.
func describeEvent(kind string, time int64, backfill bool, source string, offset uint64, ids []string, items []string, title string,
	attributes []byte, score int64, seq uint64, slot int,
) string {
	return fmt.Sprintf("%s %d %t %s %d %q %q %q %x %d %d %d", kind, time, backfill, source, offset, ids, items, title, attributes,
		score, seq, slot)
}

// checkTable checks that a Parquet file contains these events, and no others.
func checkTable(t *testing.T, data []byte, want []events.Event) {
	t.Helper()
	table, file := mustReadParquet[export.EventRecord](t, data)
	if len(table) != len(want) {
		t.Fatalf("got %d events, expected %d", len(table), len(want))
	}

	for i, r := range table {
		w := &want[i]
		got := describeEvent(r.Kind, r.Time, r.Backfill, r.Source, r.Offset,
			[]string{r.User, r.Peer, r.Board, r.Pin, r.Item, r.RepinUser, r.RepinPin}, r.Items, r.Title, r.Attributes, r.Score,
			r.Sequence, int(*r.Slot))
		wanted := describeEvent(w.Kind.String(), int64(w.Time), w.Backfill, w.Source, w.Offset,
			[]string{w.User, w.Peer, w.Board, w.Pin, w.Item, w.RepinUser, w.RepinPin}, w.Items, w.Title, w.Attributes, w.Score,
			w.Seq, int(w.Slot))
		if got != wanted {
			t.Fatalf("event %d: got\n%s, expected\n%s", i, got, wanted)
		}
	}

	if v, _ := file.Lookup("skein.schema"); v != "1" {
		t.Errorf("got the schema %q, expected 1", v)
	}
}

// Both formats contain the log: all of it, and by kind, by user and between two positions.
func TestExportedEventsAreTheLog(t *testing.T) {
	p := publishHistory(t, makeHistory(6, 60))
	want := p.allEvents()

	checkObjects(t, p.mustExport(t, export.Range{}, export.EventsOptions{Format: export.NDJSON}), want)
	checkTable(t, p.mustExport(t, export.Range{}, export.EventsOptions{Format: export.Parquet}), want)

	kinds := events.Kinds(events.PinCreated, events.Played)
	wantOfKinds := slices.DeleteFunc(slices.Clone(want), func(ev events.Event) bool { return !kinds.Has(ev.Kind) })
	data := p.mustExport(t, export.Range{Kinds: kinds}, export.EventsOptions{Format: export.Parquet, Kinds: kinds})
	checkTable(t, data, wantOfKinds)

	for _, user := range oddIDs {
		wantOfUser := slices.DeleteFunc(slices.Clone(want), func(ev events.Event) bool {
			return ev.User != user && ev.Peer != user && ev.RepinUser != user
		})
		if len(wantOfUser) < 7 {
			t.Fatalf("the log has %d events of user %q, expected at least 7", len(wantOfUser), user)
		}
		checkObjects(t, p.mustExport(t, export.Range{}, export.EventsOptions{Format: export.NDJSON, User: user}), wantOfUser)
	}
}

// TestRangesCutAtAnyEventAreComplete cuts the log after every event. The two parts together are the
// whole log.
func TestRangesCutAtAnyEventAreComplete(t *testing.T) {
	p := publishHistory(t, makeHistory(7, 3))
	want := p.allEvents()
	rows, _ := mustReadParquet[export.EventRecord](t, p.mustExport(t, export.Range{}, export.EventsOptions{Format: export.Parquet}))

	positionsWithinEnvelopes := 0
	for i, r := range rows {
		position, err := events.ParseEventPosition(r.Position)
		if err != nil {
			t.Fatal(err)
		}
		if position.Slots > 0 {
			positionsWithinEnvelopes++
		}

		o := export.EventsOptions{Format: export.NDJSON}
		checkObjects(t, p.mustExport(t, export.Range{Until: r.Position}, o), want[:i+1])
		checkObjects(t, p.mustExport(t, export.Range{After: r.Position}, o), want[i+1:])
		checkObjects(t, p.mustExport(t, export.Range{After: r.Position, Until: r.Position}, o), nil)
	}
	if positionsWithinEnvelopes == 0 {
		t.Errorf("got no position within an envelope among %d rows, expected some", len(rows))
	}

	// Ranges that are not in the log are refused.
	for _, invalid := range []struct {
		r    export.Range
		want error
	}{
		{export.Range{After: rows[len(rows)-1].Position, Until: rows[0].Position}, export.ErrRange},
		{export.Range{After: "nowhere"}, events.ErrPosition},
		{export.Range{After: export.Earliest, Until: p.log.Position(1 << 40).String()}, events.ErrPositionAhead},
	} {
		from := export.FromLog(p.log, p.hub, invalid.r)
		_, err := export.Events(t.Context(), &bytes.Buffer{}, from, export.EventsOptions{Format: export.NDJSON})
		if !errors.Is(err, invalid.want) {
			t.Errorf("range %+v: got %v, expected %v", invalid.r, err, invalid.want)
		}
	}
}

// A log whose beginning is archived is exported completely.
func TestExportReadsTheArchive(t *testing.T) {
	p := publishHistory(t, makeHistory(8, 60))

	// Archive the first half.
	b, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(t.Context(), b, p.log.ID())
	if err != nil {
		t.Fatal(err)
	}
	w := a.Writer()
	if err := w.Add(p.envs[:len(p.envs)/2]...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.log.SetArchive(a)

	// With kinds that are all facts, only the facts of the archive are read, which omits envelopes
	// without facts.
	want := p.allEvents()
	kinds := events.Kinds(events.UserFollowed, events.PinCreated)
	wantOfKinds := slices.DeleteFunc(slices.Clone(want), func(ev events.Event) bool { return !kinds.Has(ev.Kind) })
	checkTable(t, p.mustExport(t, export.Range{Kinds: kinds}, export.EventsOptions{Format: export.Parquet}), wantOfKinds)

	checkTable(t, p.mustExport(t, export.Range{}, export.EventsOptions{Format: export.Parquet}), want)
}
