package events

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Rejection says why one event was refused: to the client by the gateway, and in a [Reject] by the reader.
type Rejection struct {
	// Index is the index of the event in the call or envelope, from 0. [Validate] leaves it 0.
	Index int
	// Reason is for programs.
	Reason skeinv1.Reason
	// Field is the path of the field at fault inside the event, such as "pin_created.pin.pin_id"; empty when the
	// whole is at fault.
	Field string
	// Message is for people and names the field and its limit.
	Message string
}

// Error returns the message.
func (r Rejection) Error() string { return r.Message }

// Validate refuses what can be refused by looking at one event alone, and returns nil for a good event. The
// decoder refuses exactly the same on reading, for every fold alike (I11).
func Validate(ev *skeinv1.Event) *Rejection {
	flat, raw := flatten(ev)
	return check(&flat, &raw)
}

// check judges a flat event. Item is as the client gave it: perhaps empty for a pin.
func check(ev *Event, raw *rawFields) *Rejection {
	if !ev.Kind.Valid() {
		return reject(skeinv1.Reason_REASON_UNKNOWN_KIND, "kind",
			"must be given by one field of Event that this version knows, such as user_followed")
	}
	if r := checkText("event_id", ev.ID, MaxEventIDBytes, true); r != nil {
		return r
	}
	if r := checkBackfill(ev, raw.occurred); r != nil {
		return r
	}

	kind := &kindShapes[ev.Kind]
	for i := range kind.values {
		if r := kind.values[i].check(ev, raw); r != nil {
			return r
		}
	}
	if kind.fields.Has(FieldPeer) && ev.User == ev.Peer {
		return reject(skeinv1.Reason_REASON_SELF_RELATION, kind.peerPath,
			"must not be the acting user: nobody follows, blocks or mutes themselves")
	}
	return nil
}

// check judges one field of an event.
func (f *fieldShape) check(ev *Event, raw *rawFields) *Rejection {
	invalid := skeinv1.Reason_REASON_INVALID_FIELD
	mayBeEmpty := !raw.required.Has(f.field)
	switch f.form {
	case formID:
		return checkText(f.path, *ev.Text(f.field), f.limit, mayBeEmpty)
	case formTitle:
		if len(ev.Title) > MaxTitleBytes || !utf8.ValidString(ev.Title) {
			return reject(invalid, f.path, "has %d bytes: at most %d bytes of valid UTF-8", len(ev.Title), MaxTitleBytes)
		}
	case formAttributes:
		if len(ev.Attributes) > MaxAttributesBytes {
			return reject(invalid, f.path, "has %d bytes: at most %d", len(ev.Attributes), MaxAttributesBytes)
		}
	case formItems:
		if n := len(ev.Items); n < 1 || n > MaxServedItems {
			return reject(invalid, f.path, "has %d items: 1 to %d", n, MaxServedItems)
		}
		for i, item := range ev.Items {
			if ValidateID(item) != nil {
				return checkText(fmt.Sprintf("%s[%d]", f.path, i), item, MaxIDBytes, false)
			}
		}
	case formTime:
		if !validTime(raw.read) {
			return reject(invalid, f.path, timeBounds)
		}
	}
	return nil
}

// checkBackfill judges source, offset and occurred_at, which come together or not at all.
func checkBackfill(ev *Event, occurred *timestamppb.Timestamp) *Rejection {
	invalid := skeinv1.Reason_REASON_INVALID_BACKFILL
	if !ev.Backfill {
		if occurred != nil {
			return reject(invalid, "occurred_at", "is for backfills: a live event (without source) has the log's time")
		}
		if ev.Offset != 0 {
			return reject(invalid, "offset", "is for backfills: a live event (without source) has none")
		}
		return nil
	}
	if !ev.Kind.Backfillable() {
		return reject(invalid, "source", "must be empty: %v cannot be backfilled", ev.Kind)
	}
	if r := checkText("source", ev.Source, MaxSourceBytes, false); r != nil {
		return r
	}
	if ev.Offset == 0 {
		return reject(invalid, "offset", "must be at least 1 in a backfill")
	}
	if occurred == nil {
		return reject(invalid, "occurred_at", "must be present in a backfill")
	}
	if !validTime(occurred) {
		return reject(invalid, "occurred_at", timeBounds)
	}
	return nil
}

const timeBounds = "must be a time from 1970 to 9999 with 0 to 999999999 nanoseconds"

func validTime(t *timestamppb.Timestamp) bool { return t.CheckValid() == nil && t.GetSeconds() >= 0 }

func checkText(field, s string, limit int, empty bool) *Rejection {
	if s == "" && empty {
		return nil
	}
	if err := validateText(s, limit); err != nil {
		return textRejection(field, err, limit)
	}
	return nil
}

func textRejection(field string, err error, limit int) *Rejection {
	message := fmt.Sprintf("must be 1 to %d bytes of printable UTF-8 without spaces", limit)
	switch {
	case errors.Is(err, ErrIDEmpty):
		message += " and is empty"
	case errors.Is(err, ErrIDTooLong):
		message = err.Error()
	}
	return reject(skeinv1.Reason_REASON_INVALID_FIELD, field, "%s", message)
}

func reject(reason skeinv1.Reason, field, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Field: field, Message: field + " " + fmt.Sprintf(format, args...)}
}

// microsOf cuts a valid timestamp to microseconds, toward the past.
func microsOf(seconds int64, nanos int32) Micros {
	return Micros(seconds*int64(time.Second/time.Microsecond) + int64(nanos)/int64(time.Microsecond))
}
