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
	flat, wire := flatten(ev)
	return check(&flat, &wire)
}

// unflat is what [check] must know of a message beyond its flat form.
type unflat struct {
	occurred *timestamppb.Timestamp
	repin    bool // repin_of is present, be it empty
	read     *timestamppb.Timestamp
}

// shape names the fields of a kind inside its message. A named field holds an id.
type shape struct {
	user, peer, board, pin, item string
	// namedBoard: the board may not be the default board.
	namedBoard bool
	// ownItem: an empty item stands for one with the pin's id.
	ownItem bool
}

var shapes = [lastKind + 1]shape{
	UserFollowed:    {user: "user_id", peer: "target_user_id"},
	UserUnfollowed:  {user: "user_id", peer: "target_user_id"},
	BoardFollowed:   {user: "user_id", peer: "board.owner_id", board: "board.board_id"},
	BoardUnfollowed: {user: "user_id", peer: "board.owner_id", board: "board.board_id"},
	BoardCreated:    {user: "board.owner_id", board: "board.board_id", namedBoard: true},
	BoardDeleted:    {user: "board.owner_id", board: "board.board_id", namedBoard: true},
	PinCreated:      {user: "pin.owner_id", pin: "pin.pin_id", board: "board_id", item: "item_id", ownItem: true},
	PinMoved:        {user: "pin.owner_id", pin: "pin.pin_id", board: "board_id"},
	PinDeleted:      {user: "pin.owner_id", pin: "pin.pin_id"},
	UserBlocked:     {user: "user_id", peer: "target_user_id"},
	UserUnblocked:   {user: "user_id", peer: "target_user_id"},
	UserMuted:       {user: "user_id", peer: "target_user_id"},
	UserUnmuted:     {user: "user_id", peer: "target_user_id"},
	UserDeleted:     {user: "user_id"},
	Liked:           {user: "user_id", item: "item_id"},
	Unliked:         {user: "user_id", item: "item_id"},
	Played:          {user: "user_id", item: "item_id"},
	Served:          {user: "user_id"},
	SeenCleared:     {user: "user_id"},
	ItemScored:      {item: "item_id"},
	RepinsHidden:    {user: "user_id", peer: "target_user_id"},
	RepinsShown:     {user: "user_id", peer: "target_user_id"},
	FeedRead:        {user: "user_id"},
}

// check judges a flat event. Item is as the client gave it: perhaps empty for a pin.
func check(ev *Event, wire *unflat) *Rejection {
	if !ev.Kind.Valid() {
		return reject(skeinv1.Reason_REASON_UNKNOWN_KIND, "kind",
			"must be given by one field of Event that this version knows, such as user_followed")
	}
	if r := checkText("event_id", ev.ID, MaxEventIDBytes, true); r != nil {
		return r
	}
	if r := checkBackfill(ev, wire.occurred); r != nil {
		return r
	}
	s := &shapes[ev.Kind]
	for _, f := range [...]struct {
		name, id string
		empty    bool
	}{
		{s.user, ev.User, false},
		{s.peer, ev.Peer, false},
		{s.board, ev.Board, !s.namedBoard},
		{s.pin, ev.Pin, false},
		{s.item, ev.Item, s.ownItem},
	} {
		if f.name == "" {
			continue
		}
		if r := checkID(ev.Kind, f.name, f.id, f.empty); r != nil {
			return r
		}
	}
	if s.peer != "" && ev.User == ev.Peer {
		return reject(skeinv1.Reason_REASON_SELF_RELATION, ev.Kind.String()+"."+s.peer,
			"must not be the acting user: nobody follows, blocks or mutes themselves")
	}
	return checkContent(ev, wire)
}

// checkContent judges the fields that only one kind has.
func checkContent(ev *Event, wire *unflat) *Rejection {
	invalid := skeinv1.Reason_REASON_INVALID_FIELD
	switch ev.Kind {
	case BoardCreated:
		if len(ev.Title) > MaxTitleBytes || !utf8.ValidString(ev.Title) {
			return reject(invalid, "board_created.title", "has %d bytes: at most %d bytes of valid UTF-8",
				len(ev.Title), MaxTitleBytes)
		}
	case PinCreated:
		if len(ev.Attributes) > MaxAttributesBytes {
			return reject(invalid, "pin_created.attributes", "has %d bytes: at most %d",
				len(ev.Attributes), MaxAttributesBytes)
		}
		if !wire.repin {
			return nil
		}
		if r := checkID(PinCreated, "repin_of.owner_id", ev.RepinUser, false); r != nil {
			return r
		}
		return checkID(PinCreated, "repin_of.pin_id", ev.RepinPin, false)
	case Served:
		if n := len(ev.Items); n < 1 || n > MaxServedItems {
			return reject(invalid, "served.item_ids", "has %d items: 1 to %d", n, MaxServedItems)
		}
		for i, item := range ev.Items {
			if r := checkID(Served, fmt.Sprintf("item_ids[%d]", i), item, false); r != nil {
				return r
			}
		}
	case FeedRead:
		if !validTime(wire.read) {
			return reject(invalid, "feed_read.read_time", timeBounds)
		}
	case BackfillClosed:
		return checkText("backfill_closed.source", ev.Source, MaxSourceBytes, true)
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

func checkID(kind Kind, name, id string, empty bool) *Rejection {
	if id == "" && empty {
		return nil
	}
	if err := ValidateID(id); err != nil {
		return textRejection(kind.String()+"."+name, err, MaxIDBytes)
	}
	return nil
}

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
