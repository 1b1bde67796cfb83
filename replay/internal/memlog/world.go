package memlog

import (
	"fmt"
	"math/rand/v2"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// World generates a log in which some hundred users follow, pin, play and like. Their rows are in
// most partitions. The log covers so much time that months are closed and expire. Worlds with the
// same seed and number of users generate the same log.
type World struct {
	random *rand.Rand
	cursor events.Cursor // of the last envelope
	offset uint64        // of the last imported event
	users  int
}

// NewWorld returns a world with this many users. Its log is empty.
func NewWorld(seed uint64, users int) *World {
	return &World{
		random: rand.New(rand.NewPCG(seed, 77)), users: users,
		cursor: events.Cursor{Log: events.LogID{9, byte(seed)}, Epoch: 1, LastTime: 1_700_000_000_000_000},
	}
}

// Envelopes returns the next n envelopes, with random events. A few of them have no event, or a
// rejected message.
func (w *World) Envelopes(n int) []*events.Envelope {
	envs := make([]*events.Envelope, n)
	for i := range envs {
		envs[i] = w.randomEnvelope()
	}
	return envs
}

// Envelope returns the next envelope, with these events. It sets their sequences, slots and times.
func (w *World) Envelope(evs ...events.Event) *events.Envelope {
	w.cursor.Seq++
	w.cursor.LastTime += events.Micros(w.random.IntN(3_600_000_000))
	env := &events.Envelope{Bytes: 100 * len(evs)}
	for slot, ev := range evs {
		w.cursor.LastTime++
		ev.Slot, ev.Seq = uint16(slot), w.cursor.Seq
		if ev.Backfill {
			ev.Time = w.cursor.LastTime - events.Micros(w.random.IntN(1_000_000_000))
		} else {
			ev.Time = w.cursor.LastTime
		}
		env.Kinds |= events.Kinds(ev.Kind)
		env.Events = append(env.Events, ev)
	}
	env.Cursor = w.cursor
	return env
}

func (w *World) randomEnvelope() *events.Envelope {
	evs := make([]events.Event, w.random.IntN(8))
	for i := range evs {
		evs[i] = w.randomEvent()
	}
	env := w.Envelope(evs...)
	if w.random.IntN(20) == 0 {
		env.Rejects = []events.Reject{{Seq: env.Seq(), Slot: -1, Rejection: events.Rejection{
			Index: -1, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Message: "no event",
		}}}
	}
	return env
}

// User returns a random user. A few users are much more likely than the others.
func (w *World) User() string {
	return fmt.Sprint("user", min(w.random.IntN(w.users), w.random.IntN(w.users)))
}

func (w *World) randomBoard() string { return [...]string{"", "art", "b2"}[w.random.IntN(3)] }

func (w *World) randomItem() string {
	return fmt.Sprint(1000 + min(w.random.IntN(100), w.random.IntN(100)))
}

func (w *World) randomPin() string { return fmt.Sprint("pin", w.random.IntN(6)) }

// randomEvent returns an event of a random kind. One in six of the events that may be imported is
// marked as imported.
func (w *World) randomEvent() events.Event {
	ev := events.Event{User: w.User()}
	for ev.Peer == "" || ev.Peer == ev.User {
		ev.Peer = w.User()
	}

	// kinds has each kind with its relative frequency.
	kinds := [...]struct {
		weight int
		kind   events.Kind
	}{
		{22, events.UserFollowed},
		{4, events.UserUnfollowed},
		{12, events.BoardFollowed},
		{8, events.BoardUnfollowed},
		{3, events.BoardCreated},
		{1, events.BoardDeleted},
		{22, events.PinCreated},
		{3, events.PinMoved},
		{3, events.PinDeleted},
		{2, events.PinEdited},
		{2, events.UserBlocked},
		{1, events.UserUnblocked},
		{2, events.UserMuted},
		{3, events.FollowSettingsSet},
		{4, events.FeedRead},
		{2, events.NotificationsSeen},
		{2, events.NotificationsRead},
		{6, events.Reacted},
		{2, events.Unreacted},
		{24, events.Played},
		{8, events.Served},
		{1, events.SeenCleared},
		{1, events.ItemScored},
		{2, events.ItemHidden},
		{1, events.ItemShown},
		{1, events.UserDeleted},
	}
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	chosen := w.random.IntN(sum)
	for _, k := range kinds {
		chosen -= k.weight
		if chosen < 0 {
			ev.Kind = k.kind
			break
		}
	}

	w.setFields(&ev)
	if ev.Kind.Backfillable() && w.random.IntN(6) == 0 {
		w.offset++
		ev.Backfill, ev.Source, ev.Offset = true, "old", w.offset
	}
	ev.FillDerivedFields()
	return ev
}

// setFields sets the fields that an event of this kind has. It clears Peer if the kind has none.
func (w *World) setFields(ev *events.Event) {
	peer := ev.Peer
	ev.Peer = ""
	switch ev.Kind {
	case events.BoardFollowed, events.BoardUnfollowed:
		ev.Peer, ev.Board = peer, w.randomBoard()
	case events.BoardCreated, events.BoardDeleted:
		ev.Board, ev.Title = "art", ""
	case events.PinCreated:
		ev.Board, ev.Pin, ev.Item = w.randomBoard(), w.randomPin(), w.randomItem()
		if w.random.IntN(4) == 0 {
			ev.RepinUser, ev.RepinPin = peer, w.randomPin()
		}
	case events.PinMoved:
		ev.Board, ev.Pin = w.randomBoard(), w.randomPin()
	case events.PinDeleted:
		ev.Pin = w.randomPin()
	case events.PinEdited:
		ev.Pin, ev.Attributes = w.randomPin(), []byte(w.randomItem())
	case events.Reacted, events.Unreacted:
		ev.Item, ev.RepinUser, ev.RepinPin = w.randomItem(), peer, w.randomPin()
	case events.Played, events.ItemHidden, events.ItemShown:
		ev.Item = w.randomItem()
	case events.ItemScored:
		ev.User, ev.Item, ev.Score = "", w.randomItem(), int64(w.random.IntN(1<<30))
	case events.FeedRead, events.NotificationsSeen, events.NotificationsRead:
		ev.Read = w.cursor.LastTime - events.Micros(w.random.IntN(1_000_000_000))
	case events.Served:
		ev.Items = []string{w.randomItem(), w.randomItem()}
	case events.UserFollowed, events.UserUnfollowed, events.UserBlocked, events.UserUnblocked, events.UserMuted,
		events.UserUnmuted:
		ev.Peer = peer
		if ev.Kind == events.UserMuted && w.random.IntN(2) == 0 {
			ev.Until = w.cursor.LastTime + events.Micros(w.random.IntN(1_000_000_000))
		}
	case events.FollowSettingsSet:
		ev.Peer, ev.Settings = peer, events.FollowSettings(w.random.IntN(int(events.AllFollowSettings)+1))
	}
}
