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
	// Slotted reports whether Slot is known. A running service does not send the slot of the last
	// event in an envelope.
	Slotted bool
}

// ScanFunc calls emit with each event, in the order of the log. If emit returns an error, the scan
// ends and returns it.
type ScanFunc func(ctx context.Context, emit func(*Event) error) error

// EventsOptions select the scanned events that are exported.
type EventsOptions struct {
	Format Format
	// Kinds are the kinds to export; 0 means all.
	Kinds events.KindSet
	// User selects the events by this user or towards this user, as [Concerns] reports; empty
	// selects all events.
	User string
}

// EventRecord is the schema of events in Parquet. Fields that the kind of an event does not have
// are empty.
type EventRecord struct {
	Kind string `parquet:"kind,dict"`
	// Time is the time of the event: for a live event when the log accepted it, and for an imported
	// one its occurred_at.
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
	Reaction   string   `parquet:"reaction,dict"`
	Title      string   `parquet:"title"`
	Attributes []byte   `parquet:"attributes"`
	Score      int64    `parquet:"score"`
	ReadTime   int64    `parquet:"read_time,timestamp(microsecond)"`
	Group      string   `parquet:"group"`

	Sequence uint64 `parquet:"sequence"`
	// Slot is the index of the event in its envelope; null means unknown.
	Slot *int32 `parquet:"slot,optional"`
	// Position is the position after the event, at which a reader can continue.
	Position string `parquet:"position"`

	event *Event
}

// Concerns reports whether an event is by a user or towards this user: another user follows, blocks
// or mutes the user, follows one of the user's boards, re-pins one of the user's pins, or reacts on
// one.
func Concerns(ev *events.Event, user string) bool {
	return ev.User == user || ev.Peer == user || ev.RepinUser == user
}

// Events writes the selected events of a scan to w, and returns how many it has written. It does
// not close w.
func Events(ctx context.Context, w io.Writer, scan ScanFunc, o EventsOptions) (n Counts, err error) {
	out, err := newRowWriter(w, o.Format, []metadataEntry{{"skein.exported", nowText()}}, appendEvent)
	if err != nil {
		return n, err
	}

	err = scan(ctx, func(ev *Event) error {
		isKind := o.Kinds == 0 || o.Kinds.Has(ev.Kind)
		isOfUser := o.User == "" || Concerns(&ev.Event, o.User)
		if !isKind || !isOfUser {
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

// reactionOf returns the kind of a reaction as clients name it. It is empty for other events.
func reactionOf(ev *events.Event) string {
	if !ev.Kind.Fields().Has(events.FieldReaction) {
		return ""
	}
	return events.ReactionName(ev.Reaction)
}

// recordOf returns the Parquet record of an event, and about how many bytes of memory it takes.
func recordOf(ev *Event) (EventRecord, int) {
	record := EventRecord{
		Kind:       ev.Kind.String(),
		Time:       int64(ev.Time),
		Backfill:   ev.Backfill,
		Source:     ev.Source,
		Offset:     ev.Offset,
		User:       ev.User,
		Peer:       ev.Peer,
		Board:      ev.Board,
		Pin:        ev.Pin,
		Item:       ev.Item,
		Items:      slices.Clone(ev.Items),
		RepinUser:  ev.RepinUser,
		RepinPin:   ev.RepinPin,
		Reaction:   reactionOf(&ev.Event),
		Title:      ev.Title,
		Attributes: ev.Attributes,
		Score:      ev.Score,
		ReadTime:   int64(ev.Read),
		Group:      ev.Group,
		Sequence:   ev.Seq,
		Position:   ev.After.String(),
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

// appendEvent appends an event as JSON, in the form of the WatchResponse of the API, without the
// end of the line.
func appendEvent(b []byte, record *EventRecord) ([]byte, error) {
	ev := record.event
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(&skeinv1.WatchResponse{
		Position:  ev.After.String(),
		Event:     ev.Proto(),
		EventTime: timestamppb.New(ev.Time.Time()),
	})
	if err != nil {
		return b, err
	}
	// protojson deliberately varies its spaces, so that nobody depends on them. An export must
	// always have the same bytes.
	line := bytes.NewBuffer(b)
	err = json.Compact(line, data)
	return line.Bytes(), err
}
