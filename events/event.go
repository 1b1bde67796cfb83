package events

import (
	"bytes"
	"strings"
	"time"
)

// Micros is a time in microseconds since 1970-01-01 UTC. All times of skein have this resolution.
type Micros int64

// Time returns the time as a time.Time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// FollowSettings is a set of settings of a follow, one bit each.
type FollowSettings uint8

// The settings of a follow.
const (
	// SettingHideRepins leaves the followed user's re-pins out of the follower's feeds.
	SettingHideRepins FollowSettings = 1 << iota
	// SettingNotify puts the followed user's new pins into the follower's feed of the bell.
	SettingNotify
	// SettingFavorite puts the followed user's pins into the follower's feed of favorites.
	SettingFavorite

	// AllFollowSettings is the set of all settings.
	AllFollowSettings = SettingHideRepins | SettingNotify | SettingFavorite
)

// Has reports whether all of the given settings are in the set.
func (s FollowSettings) Has(settings FollowSettings) bool { return s&settings == settings }

// Event is one decoded, valid fact, as folds receive it. Which fields are set depends on Kind. All
// strings of an envelope share one allocation, so clone strings that are kept longer than the
// envelope.
type Event struct {
	Kind Kind
	// Backfill is true for imported history, and false for live facts. In the order of facts all
	// backfills come before all live facts.
	Backfill bool
	// Settings are the settings of a FollowSettingsSet. They are here because they take no memory
	// between fields of one and two bytes.
	Settings FollowSettings
	// Slot is the index of the event in its envelope. Malformed and dropped events have slots, too.
	Slot uint16
	// Seq is the sequence of the envelope in the log.
	Seq uint64
	// Time is the log time of a live event, which is unique and rises along the log (I5). The time
	// of a backfill is its occurred_at, or its log time if that is earlier.
	Time Micros
	// Source and Offset are the name of the import of a backfill, and the position of the backfill
	// in it. They are empty and 0 for a live event, except that the Source of a BackfillClosed is
	// the source that ends.
	Source string
	Offset uint64
	// ID is the event id that the client chose. It is empty if the client chose none.
	ID string

	// User is the acting user: the user_id, or the owner of the board or pin. It is empty for
	// ItemScored and BackfillClosed.
	User string
	// Peer is the other user: the one who is followed, blocked or muted, or who owns the followed
	// board.
	Peer string
	// Board is the id of a board of Peer for BoardFollowed and BoardUnfollowed, and of a board of
	// User otherwise. The default board has an empty id.
	Board string
	// Pin is the id of a pin of User.
	Pin string
	// Item is the item that is played, reacted to, hidden, scored, or shown by a pin. The Item of a
	// PinCreated is never empty.
	Item string
	// Items are the items of a Served.
	Items []string
	// RepinUser and RepinPin are the owner and id of the pin that a PinCreated re-pins, of which
	// the pin of a PinDeleted was a re-pin, or on which the user of a Reacted or Unreacted reacted.
	// They are empty if there is no such pin.
	RepinUser, RepinPin string
	// Reaction is the kind of a Reacted or Unreacted. It is empty for likes; "like" is only the
	// name that clients see (see [ReactionName]).
	Reaction string
	// Title is the title of a board.
	Title string
	// Attributes are the attributes of a pin, whose meaning only the client knows.
	Attributes []byte
	// Score is the score of an item.
	Score int64
	// Read is the time up to which the feed was read, of a FeedRead, or up to which notifications
	// were seen or read. It may be after Time.
	Read Micros
	// Group is the id of the group of notifications that a NotificationsRead is about. It is empty
	// if all groups were read.
	Group string
	// Until is when the mute of a UserMuted ends by itself. 0 means that it does not. It may be
	// before Time.
	Until Micros
	// Encoded is the [Event.Canonical] encoding. It is set only for a backfilled BoardCreated or
	// PinCreated: of two backfills with the same time, the one with the larger encoding counts as
	// the later (docs/semantics.md). It follows from the other fields, so the archive does not
	// store it.
	Encoded []byte
}

// Envelope is one decoded message of the log.
type Envelope struct {
	// Events are the valid events that are not repeats, in order. Their slots rise, but need not be
	// consecutive.
	Events []Event
	// Kinds are the kinds that occur in Events.
	Kinds KindSet
	// Rejects are the malformed events, the events that reuse an event id for something else (I6),
	// and, with Slot -1, the envelope itself if it could not be decoded.
	Rejects []Reject
	// Repeats counts the events dropped because their event id occurred within the horizon (I6).
	Repeats int
	// Repeated has two entries for each of those events and for each reject of a reused event id:
	// the [RepeatKey] and the [ContentKey], which are remembered for another horizon. Archived
	// envelopes do not have it.
	Repeated []Repeat
	// Cursor is the cursor after this envelope.
	Cursor Cursor
	// Bytes is the size of the message in the log.
	Bytes int
	// Traces are the traceparents of traced calls. They are not part of the log: archived envelopes
	// do not have them, and no fold may depend on them.
	Traces []string
}

// Seq returns the sequence of the envelope in the log.
func (e *Envelope) Seq() uint64 { return e.Cursor.Seq }

// FirstTime returns the log time of slot 0, whose event may have been dropped or refused. It
// returns false if the envelope has no slots.
func (e *Envelope) FirstTime() (Micros, bool) {
	// A live event states its log time; the time of a backfill is its own.
	for i := range e.Events {
		if ev := &e.Events[i]; !ev.Backfill {
			return ev.Time - Micros(ev.Slot), true
		}
	}

	// Each event has taken one slot: the valid ones, the repeats, and the rejects of single events.
	// The last slot has the last time.
	slots := len(e.Events) + e.Repeats
	for i := range e.Rejects {
		if e.Rejects[i].Slot >= 0 {
			slots++
		}
	}
	return e.Cursor.LastTime - Micros(slots-1), slots > 0
}

// SkippedSlots returns which of the n slots from a slot on are not among Events: the indexes of the
// repeats, and the rejections. Indexes count from the first of the slots. It returns false if the
// envelope does not have that information: an archived envelope may have changed since it was
// written.
func (e *Envelope) SkippedSlots(from, n int) (repeats []int, rejections []Rejection, ok bool) {
	if e.Cursor.IsArchival() {
		return nil, nil, false
	}

	accounted := make([]bool, n) // slots that are in Events or Rejects
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
	// Slot is the index of the event in the envelope, or -1 for the whole envelope.
	Slot int
	// Rejection is the reason.
	Rejection Rejection
	// Data holds the first bytes of the message or event, at most 256.
	Data []byte
}

// RedactUser returns the reject without its data and message where they contain the id of an erased
// user. named is true if one of them did.
func (r Reject) RedactUser(user string) (without Reject, named bool) {
	if bytes.Contains(r.Data, []byte(user)) {
		r.Data, named = nil, true
	}
	if strings.Contains(r.Rejection.Message, user) {
		r.Rejection.Message, named = "", true
	}
	return r, named
}
