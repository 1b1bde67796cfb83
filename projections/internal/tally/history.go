package tally

import (
	"fmt"
	"math/rand/v2"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// History returns n envelopes, the same for the same seed. They have large events, backfills that repeat offsets, closings of
// backfills, rejects, kinds that the projection does not read, and envelopes without events.
func History(seed uint64, n int) []*events.Envelope {
	h := history{r: rand.New(rand.NewPCG(seed, 1)), offsets: map[string]uint64{}}
	h.cursor = events.Cursor{Log: events.LogID{byte(seed), 7, 7}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	envs := make([]*events.Envelope, n)
	for i := range envs {
		envs[i] = h.envelope(i, n)
	}
	return envs
}

type history struct {
	r       *rand.Rand
	cursor  events.Cursor
	offsets map[string]uint64
}

func (h *history) envelope(i, n int) *events.Envelope {
	h.cursor.Seq += 1 + uint64(h.r.IntN(10)/9) // sequences may have holes
	h.cursor.Checksum = h.r.Uint64()
	h.cursor.LastTime += 1000
	env := &events.Envelope{Bytes: 100}
	events := h.r.IntN(6)
	for slot := range events {
		if h.r.IntN(12) == 0 {
			env.Rejects = append(env.Rejects, h.reject(slot))
			continue
		}
		ev := h.event(i, n)
		ev.Slot, ev.Seq = uint16(slot), h.cursor.Seq
		h.cursor.LastTime++
		if !ev.Backfill {
			ev.Time = h.cursor.LastTime
		}
		env.Kinds |= 1 << ev.Kind
		env.Events = append(env.Events, ev)
	}
	if h.r.IntN(20) == 0 {
		env.Rejects = append(env.Rejects, h.reject(-1))
	}
	env.Cursor = h.cursor
	return env
}

func (h *history) reject(slot int) events.Reject {
	return events.Reject{
		Seq: h.cursor.Seq, Slot: slot, Data: []byte{1, 2, byte(h.r.IntN(9))},
		Rejection: events.Rejection{
			Index: slot, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Field: "user_id", Message: "user_id is bad",
		},
	}
}

func (h *history) user() string { return [...]string{"ann", "bob", "7", "10"}[h.r.IntN(4)] }

// event returns the i-th event of n: backfills are closed towards the end.
func (h *history) event(i, n int) events.Event {
	ev := events.Event{User: h.user(), Peer: "p" + fmt.Sprint(h.r.IntN(30))}
	switch k := h.r.IntN(100); {
	case k < 40:
		ev.Kind = events.UserFollowed
	case k < 50:
		ev.Kind = events.UserUnfollowed
	case k < 75:
		ev.Kind, ev.Item = events.Played, "i"+fmt.Sprint(h.r.IntN(3))
	case k < 83:
		ev.Kind = events.Served
		for j := range 1 + h.r.IntN(12) {
			ev.Items = append(ev.Items, "i"+fmt.Sprint(j))
		}
	case k < 90:
		ev.Kind = events.UserDeleted
	case k < 93 && 3*i > 2*n:
		ev.Kind, ev.User, ev.Source = events.BackfillClosed, "", [...]string{"old", "older", ""}[h.r.IntN(3)]
	default:
		ev.Kind = events.Liked // which Tally does not read
	}
	if ev.Kind.Backfillable() && h.r.IntN(3) == 0 {
		ev.Backfill, ev.Source = true, [...]string{"old", "older"}[h.r.IntN(2)]
		key := ev.Source + ev.Kind.String()
		ev.Offset = h.offsets[key] + uint64(h.r.IntN(4)) // sometimes equal to the last: a repeat
		h.offsets[key] = max(h.offsets[key], ev.Offset)
		ev.Time = h.cursor.LastTime - events.Micros(h.r.IntN(1_000_000))
	}
	return ev
}
