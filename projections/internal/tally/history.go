package tally

import (
	"fmt"
	"math/rand/v2"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// History returns n envelopes; the same seed and n give the same envelopes. Among them are large
// events, backfills that repeat offsets, events that close backfills, rejects, kinds that Tally
// does not read, and envelopes without events.
func History(seed uint64, n int) []*events.Envelope {
	h := history{random: rand.New(rand.NewPCG(seed, 1)), offsets: map[string]uint64{}}
	h.cursor = events.Cursor{Log: events.LogID{byte(seed), 7, 7}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	envs := make([]*events.Envelope, n)
	for i := range envs {
		envs[i] = h.nextEnvelope(i, n)
	}
	return envs
}

// history generates envelopes one after the other.
type history struct {
	random *rand.Rand
	// cursor is the position of the last envelope.
	cursor events.Cursor
	// offsets has the highest backfill offset of each source and kind.
	offsets map[string]uint64
}

// nextEnvelope returns the i-th envelope of n.
func (h *history) nextEnvelope(i, n int) *events.Envelope {
	h.cursor.Seq += 1 + uint64(h.random.IntN(10)/9) // sequences may have holes
	h.cursor.Checksum = h.random.Uint64()
	h.cursor.LastTime += 1000
	env := &events.Envelope{Bytes: 100}

	eventCount := h.random.IntN(6)
	for slot := range eventCount {
		if h.random.IntN(12) == 0 {
			env.Rejects = append(env.Rejects, h.newReject(slot))
			continue
		}
		ev := h.randomEvent(i, n)
		ev.Slot, ev.Seq = uint16(slot), h.cursor.Seq
		h.cursor.LastTime++
		if !ev.Backfill {
			ev.Time = h.cursor.LastTime
		}
		env.Kinds |= 1 << ev.Kind
		env.Events = append(env.Events, ev)
	}
	if h.random.IntN(20) == 0 {
		env.Rejects = append(env.Rejects, h.newReject(-1))
	}
	env.Cursor = h.cursor
	return env
}

// newReject returns a reject of an event in the slot; -1 rejects the whole envelope.
func (h *history) newReject(slot int) events.Reject {
	return events.Reject{
		Seq: h.cursor.Seq, Slot: slot, Data: []byte{1, 2, byte(h.random.IntN(9))},
		Rejection: events.Rejection{
			Index: slot, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Field: "user_id", Message: "user_id is bad",
		},
	}
}

// randomUser returns one of few users, so that events meet the rows of earlier ones.
func (h *history) randomUser() string { return [...]string{"ann", "bob", "7", "10"}[h.random.IntN(4)] }

// randomEvent returns an event for the i-th of n envelopes. Only the last third of the envelopes
// closes backfills.
func (h *history) randomEvent(i, n int) events.Event {
	ev := events.Event{User: h.randomUser(), Peer: "p" + fmt.Sprint(h.random.IntN(30))}
	switch k := h.random.IntN(100); {
	case k < 40:
		ev.Kind = events.UserFollowed
	case k < 50:
		ev.Kind = events.UserUnfollowed
	case k < 75:
		ev.Kind = events.Played
		ev.Item = "i" + fmt.Sprint(h.random.IntN(3))
	case k < 83:
		ev.Kind = events.Served
		for j := range 1 + h.random.IntN(12) {
			ev.Items = append(ev.Items, "i"+fmt.Sprint(j))
		}
	case k < 90:
		ev.Kind = events.UserDeleted
	case k < 93 && 3*i > 2*n:
		ev.Kind = events.BackfillClosed
		ev.User = ""
		ev.Source = [...]string{"old", "older", ""}[h.random.IntN(3)]
	default:
		ev.Kind = events.Reacted // which Tally does not read
	}

	if ev.Kind.Backfillable() && h.random.IntN(3) == 0 {
		ev.Backfill = true
		ev.Source = [...]string{"old", "older"}[h.random.IntN(2)]
		key := ev.Source + ev.Kind.String()
		ev.Offset = h.offsets[key] + uint64(h.random.IntN(4)) // sometimes equal to the last: a repeat
		h.offsets[key] = max(h.offsets[key], ev.Offset)
		ev.Time = h.cursor.LastTime - events.Micros(h.random.IntN(1_000_000))
	}
	return ev
}
