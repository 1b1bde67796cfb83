package export

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Event is an event with its position in the log.
type Event struct {
	events.Event
	// After is the position after the event.
	After events.EventPosition
	// Slotted reports whether Slot is known. A running service does not send the slot of the last event of an envelope.
	Slotted bool
}

// ScanFunc calls emit for each event, in the order of the log. An error of emit ends the scan and is returned.
type ScanFunc func(ctx context.Context, emit func(*Event) error) error

// EventsOptions say which of the scanned events are exported.
type EventsOptions struct {
	Format Format
	// Kinds are the kinds to export; 0 means all.
	Kinds events.KindSet
	// User selects the events by or towards one user, as [Concerns] reports; empty means all events.
	User string
}

// EventRecord is the schema of events in Parquet. Fields that a kind does not use are empty.
type EventRecord struct {
	Kind string `parquet:"kind,dict"`
	// Time is the log time of a live event, the occurred_at of a backfill.
	Time     int64  `parquet:"time,timestamp(microsecond)"`
	Backfill bool   `parquet:"backfill"`
	Source   string `parquet:"source,dict"`
	Offset   uint64 `parquet:"offset"`

	User       string   `parquet:"user"`
	Peer       string   `parquet:"peer"`
	Board      string   `parquet:"board"`
	Pin        string   `parquet:"pin"`
	Item       string   `parquet:"item"`
	Items      []string `parquet:"items,list"`
	RepinUser  string   `parquet:"repin_user"`
	RepinPin   string   `parquet:"repin_pin"`
	Title      string   `parquet:"title"`
	Attributes []byte   `parquet:"attributes"`
	Score      int64    `parquet:"score"`
	ReadTime   int64    `parquet:"read_time,timestamp(microsecond)"`

	Sequence uint64 `parquet:"sequence"`
	// Slot is the index within the envelope; null means unknown.
	Slot *int32 `parquet:"slot,optional"`
	// Position is the position after the event, from which a reader continues.
	Position string `parquet:"position"`

	event *Event
}

// Concerns reports whether an event is by a user or towards that user: another user follows, blocks or mutes them, follows one of their
// boards, or re-pins one of their pins.
func Concerns(ev *events.Event, user string) bool {
	return ev.User == user || ev.Peer == user || ev.RepinUser == user
}

// Events writes the wanted events of a scan to w, and returns how many. It does not close w.
func Events(ctx context.Context, w io.Writer, scan ScanFunc, o EventsOptions) (n Counts, err error) {
	out, err := newTable(w, o.Format, []pair{{"skein.exported", nowText()}}, appendEvent)
	if err != nil {
		return n, err
	}
	err = scan(ctx, func(ev *Event) error {
		if o.Kinds != 0 && !o.Kinds.Has(ev.Kind) || o.User != "" && !Concerns(&ev.Event, o.User) {
			return nil
		}
		record := EventRecord{event: ev}
		size := 0
		if o.Format == Parquet {
			record, size = recordOf(ev)
		}
		if err := out.put(&record, size); err != nil {
			return err
		}
		n.add(ev.Kind.String())
		return nil
	})
	if err != nil {
		return n, err
	}
	return n, out.close()
}

// recordOf returns the record of an event, and its approximate size in memory, in bytes.
func recordOf(ev *Event) (EventRecord, int) {
	record := EventRecord{
		Kind: ev.Kind.String(), Time: int64(ev.Time), Backfill: ev.Backfill, Source: ev.Source, Offset: ev.Offset,
		User: ev.User, Peer: ev.Peer, Board: ev.Board, Pin: ev.Pin, Item: ev.Item, Items: slices.Clone(ev.Items),
		RepinUser: ev.RepinUser, RepinPin: ev.RepinPin, Title: ev.Title, Attributes: ev.Attributes, Score: ev.Score,
		ReadTime: int64(ev.Read), Sequence: ev.Seq, Position: ev.After.String(),
	}
	if ev.Slotted {
		slot := int32(ev.Slot)
		record.Slot = &slot
	}
	size := 256 + len(record.Title) + len(record.Attributes)
	ids := []string{
		record.User, record.Peer, record.Board, record.Pin, record.Item, record.RepinUser, record.RepinPin, record.Source,
	}
	for _, id := range ids {
		size += len(id)
	}
	for _, id := range record.Items {
		size += len(id)
	}
	return record, size
}

// appendEvent appends an event as the API's WatchResponse.
func appendEvent(b []byte, record *EventRecord) ([]byte, error) {
	ev := record.event
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(&skeinv1.WatchResponse{
		Position: ev.After.String(), Event: ev.Proto(), EventTime: timestamppb.New(ev.Time.Time()),
	})
	if err != nil {
		return b, err
	}
	line := bytes.NewBuffer(b)
	err = json.Compact(line, data) // the module varies its spaces
	return line.Bytes(), err
}
