package events

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Rejection is the reason why one event was refused. The gateway returns it to the client, and a
// reader of the log keeps it in a [Reject].
type Rejection struct {
	// Index is the index of the event in the call or envelope, from 0. [Validate] leaves it 0.
	Index int
	// Reason is the reason in a form for programs.
	Reason skeinv1.Reason
	// Field is the path of the invalid field within the event, such as "pin_created.pin.pin_id". It
	// is empty if the event as a whole is invalid.
	Field string
	// Message is the reason in a form for people. It names the field and its limit.
	Message string
}

// Error returns the message.
func (r Rejection) Error() string { return r.Message }

// Validate checks everything that can be checked by looking at one event alone. It returns nil for
// a valid event. The decoder refuses exactly the same events when it reads the log, before any fold
// sees them (I11).
func Validate(ev *skeinv1.Event) *Rejection {
	flat, raw := flattenEvent(ev)
	return checkEvent(&flat, &raw)
}

// checkEvent validates an event. Its derived fields must not be set yet: the Item of a pin is the
// one that the client named, if any.
func checkEvent(ev *Event, raw *rawFields) *Rejection {
	if !ev.Kind.Valid() {
		return newRejection(skeinv1.Reason_REASON_UNKNOWN_KIND, "kind",
			"must be given by one field of Event that this version knows, such as user_followed")
	}
	if r := checkText("event_id", ev.ID, MaxEventIDBytes, true); r != nil {
		return r
	}
	if r := checkBackfill(ev, raw.occurred); r != nil {
		return r
	}

	// The values are in the order of their Field, so the same event always gets the same rejection.
	kind := &kindShapes[ev.Kind]
	for i := range kind.values {
		if r := kind.values[i].checkField(ev, raw); r != nil {
			return r
		}
	}
	if kind.fields.Has(FieldPeer) && ev.User == ev.Peer {
		return newRejection(skeinv1.Reason_REASON_SELF_RELATION, kind.peerPath,
			"must not be the acting user: nobody follows, blocks or mutes themselves")
	}
	return nil
}

// checkField validates one field of an event.
func (f *fieldShape) checkField(ev *Event, raw *rawFields) *Rejection {
	invalid := skeinv1.Reason_REASON_INVALID_FIELD
	mayBeEmpty := !raw.required.Has(f.field)
	switch f.form {
	case formID:
		return checkText(f.path, *ev.TextField(f.field), f.limit, mayBeEmpty)
	case formTitle:
		if len(ev.Title) > MaxTitleBytes || !utf8.ValidString(ev.Title) {
			return newRejection(invalid, f.path, "has %d bytes: at most %d bytes of valid UTF-8", len(ev.Title), MaxTitleBytes)
		}
	case formAttributes:
		if len(ev.Attributes) > MaxAttributesBytes {
			return newRejection(invalid, f.path, "has %d bytes: at most %d", len(ev.Attributes), MaxAttributesBytes)
		}
	case formItems:
		if n := len(ev.Items); n < 1 || n > MaxServedItems {
			return newRejection(invalid, f.path, "has %d items: 1 to %d", n, MaxServedItems)
		}
		for i, item := range ev.Items {
			if ValidateID(item) != nil {
				return checkText(fmt.Sprintf("%s[%d]", f.path, i), item, MaxIDBytes, false)
			}
		}
	case formReaction:
		if !IsReaction(ev.Reaction) {
			return newRejection(invalid, f.path, reactionRule)
		}
	case formTime:
		at := *raw.timeField(f.field)
		switch {
		case at == nil && f.optional:
		case !isValidTime(at):
			return newRejection(invalid, f.path, timeRule)
		case f.optional && microsFromTimestamp(at.GetSeconds(), at.GetNanos()) == 0:
			// In an event, the time 0 means that there is none.
			return newRejection(invalid, f.path, "must be at least a microsecond later than 1970-01-01T00:00:00Z, or absent")
		}
	}
	return nil
}

// checkBackfill validates source, offset and occurred_at. A backfill has all three of them, and a
// live event none.
func checkBackfill(ev *Event, occurred *timestamppb.Timestamp) *Rejection {
	invalid := skeinv1.Reason_REASON_INVALID_BACKFILL
	if !ev.Backfill {
		if occurred != nil {
			return newRejection(invalid, "occurred_at", "is for backfills: a live event (without source) has the log's time")
		}
		if ev.Offset != 0 {
			return newRejection(invalid, "offset", "is for backfills: a live event (without source) has none")
		}
		return nil
	}
	if !ev.Kind.Backfillable() {
		return newRejection(invalid, "source", "must be empty: %v cannot be backfilled", ev.Kind)
	}
	if r := checkText("source", ev.Source, MaxSourceBytes, false); r != nil {
		return r
	}
	if ev.Offset == 0 {
		return newRejection(invalid, "offset", "must be at least 1 in a backfill")
	}
	if occurred == nil {
		return newRejection(invalid, "occurred_at", "must be present in a backfill")
	}
	if !isValidTime(occurred) {
		return newRejection(invalid, "occurred_at", timeRule)
	}
	return nil
}

// timeRule is the rule of isValidTime, for errors.
const timeRule = "must be a time from 1970 to 9999 with 0 to 999999999 nanoseconds"

func isValidTime(t *timestamppb.Timestamp) bool { return t.CheckValid() == nil && t.GetSeconds() >= 0 }

// checkText validates an id, event id or source.
func checkText(field, s string, limit int, mayBeEmpty bool) *Rejection {
	if s == "" && mayBeEmpty {
		return nil
	}
	if err := validateText(s, limit); err != nil {
		return textRejection(field, err, limit)
	}
	return nil
}

// textRejection turns an error of validateText into a rejection.
func textRejection(field string, err error, limit int) *Rejection {
	message := fmt.Sprintf("must be 1 to %d bytes of %s", limit, idRule)
	switch {
	case errors.Is(err, ErrIDEmpty):
		message += " and is empty"
	case errors.Is(err, ErrIDTooLong):
		message = err.Error()
	}
	return newRejection(skeinv1.Reason_REASON_INVALID_FIELD, field, "%s", message)
}

// newRejection returns a rejection whose message begins with the path of the field.
func newRejection(reason skeinv1.Reason, field, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Field: field, Message: field + " " + fmt.Sprintf(format, args...)}
}

// microsFromTimestamp rounds a valid timestamp down to microseconds.
func microsFromTimestamp(seconds int64, nanos int32) Micros {
	return Micros(seconds*int64(time.Second/time.Microsecond) + int64(nanos)/int64(time.Microsecond))
}
