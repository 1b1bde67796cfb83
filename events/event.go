package events

import (
	"bytes"
	"strings"
	"time"
)

// Micros is a time in microseconds since 1970-01-01 UTC: the resolution of everything in skein.
type Micros int64

// Time converts to a time.Time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Event is one decoded, well-formed fact as every fold sees it. Which fields are set depends on Kind; the
// strings are immutable and may be kept. All strings of an envelope share its memory: clone a few that are kept
// for long.
type Event struct {
	Kind Kind
	// Backfill tells history from live facts: all backfills come before all live facts in the order of facts.
	Backfill bool
	// Slot is the position of the event in its envelope, from 0, malformed and dropped events counted.
	Slot uint16
	// Seq is the sequence of the envelope in the log.
	Seq uint64
	// Time is the log time of a live event, unique and rising along the log (I5); of a backfill its occurred_at,
	// not after its log time.
	Time Micros
	// Source and Offset name a backfill's position in its import; empty and 0 for a live event.
	// BackfillClosed carries the source that ends in Source.
	Source string
	Offset uint64
	// ID is the client's event id, if any.
	ID string

	// User is the acting user: user_id, or the owner of the board or pin. Empty for ItemScored and
	// BackfillClosed.
	User string
	// Peer is the other user: followed, blocked, muted, of hidden re-pins, or the owner of the board that is followed.
	Peer string
	// Board is a board id: of Peer's for BoardFollowed and BoardUnfollowed, else of User's. Empty: the default board.
	Board string
	// Pin is User's pin.
	Pin string
	// Item is the item played, liked, scored or shown; for PinCreated never empty.
	Item string
	// Items are the items of a Served event.
	Items []string
	// RepinUser and RepinPin name the pin that a PinCreated re-pins; empty means none.
	RepinUser, RepinPin string
	// Title of a board.
	Title string
	// Attributes of a pin.
	Attributes []byte
	// Score of an item.
	Score int64
	// Read is up to when a FeedRead says that the feed was read. It may be after Time.
	Read Micros
	// Encoded is the canonical encoding of the kind's message (known fields only, by number), set for backfilled
	// BoardCreated and PinCreated only: of two backfills at the same time the larger encoding counts as the later
	// (docs/semantics.md). It follows from the other fields, so an archive need not store it.
	Encoded []byte
}

// Envelope is one decoded message of the log.
type Envelope struct {
	// Events are the well-formed events that the reader let pass, in order. Slots rise, not always by one.
	Events []Event
	// Kinds are the kinds that occur in Events.
	Kinds KindSet
	// Rejects are the malformed events, those whose event id said something else within the horizon (I6), and, with Slot -1,
	// the envelope that did not decode.
	Rejects []Reject
	// Repeats counts the events dropped because their event id occurred within the horizon (I6).
	Repeats int
	// Repeated has two entries for each of them and for each reject of a reused id, of the id and of what was said with it, which
	// prolong what is remembered. Archived envelopes lack it.
	Repeated []Repeat
	// Cursor is where a reader stands after this envelope.
	Cursor Cursor
	// Bytes is the size of the message in the log.
	Bytes int
	// Traces are the traceparents of calls that are followed. They are no part of the log: archived envelopes lack them, and
	// nothing may depend on them.
	Traces []string
}

// Seq returns the sequence of the envelope in the log.
func (e *Envelope) Seq() uint64 { return e.Cursor.Seq }

// Skipped returns what the reader made of n slots from one on, as far as it did not let them pass: the repeats, and the rejects
// as rejections. Their indexes count from that slot. It reports false when the envelope cannot say: one from the archive may
// have changed since.
func (e *Envelope) Skipped(from, n int) (repeats []int, rejections []Rejection, ok bool) {
	if e.Cursor.Archival() {
		return nil, nil, false
	}
	accounted := make([]bool, n)
	for i := range e.Events {
		if at := int(e.Events[i].Slot) - from; at >= 0 && at < n {
			accounted[at] = true
		}
	}
	for i := range e.Rejects {
		if at := e.Rejects[i].Slot - from; at >= 0 && at < n {
			accounted[at] = true
			r := e.Rejects[i].Rejection
			r.Index = at
			rejections = append(rejections, r)
		}
	}
	for at, known := range accounted {
		if !known {
			repeats = append(repeats, at)
		}
	}
	return repeats, rejections, len(repeats) <= e.Repeats
}

// Reject is a malformed event, or an envelope that did not decode (I11).
type Reject struct {
	Seq uint64
	// Slot is the position in the envelope; -1 means the whole envelope.
	Slot int
	// Rejection says why.
	Rejection Rejection
	// Data holds the first bytes of the message or event, at most 256.
	Data []byte
}

// Without returns the reject as it stands once a user is erased: without its data and message where they name the user.
func (r Reject) Without(user string) (without Reject, named bool) {
	if bytes.Contains(r.Data, []byte(user)) {
		r.Data, named = nil, true
	}
	if strings.Contains(r.Rejection.Message, user) {
		r.Rejection.Message, named = "", true
	}
	return r, named
}
