package erase

import (
	"github.com/skein-feed/skein/events"
)

// scrubber takes a user out of the events up to and with the user's deletion. What comes after it is of a new life.
type scrubber struct {
	user, pseudonym string
	// seq and slot are the position of the deletion.
	seq  uint64
	slot uint16
}

func newScrubber(log events.LogID, user string, seq uint64, slot uint16) scrubber {
	return scrubber{user: user, pseudonym: events.NewKeyedHash(log).Pseudonym(user), seq: seq, slot: slot}
}

// event returns an event without the user: itself, if it does not name them.
func (s scrubber) event(ev *events.Event) (changed *events.Event, keep bool) {
	if ev.User != s.user && ev.Peer != s.user && ev.RepinUser != s.user ||
		ev.Seq > s.seq || ev.Seq == s.seq && ev.Slot > s.slot {
		return ev, true
	}
	without := *ev
	for _, id := range []*string{&without.User, &without.Peer, &without.RepinUser} {
		if *id == s.user {
			*id = s.pseudonym
		}
	}
	if ev.User == s.user {
		// What the user wrote, and was shown, stands in no row but the user's own.
		without.Title, without.Items = "", nil
		if len(ev.Attributes) > 0 {
			// That there are some can decide which of two backfills of a pin at one time counts.
			without.Attributes = []byte{0}
		}
	}
	if without.Encoded != nil {
		without.Encoded = without.Canonical()
	}
	return &without, true
}

// reject returns a reject as folds keep it after the deletion.
func (s scrubber) reject(r *events.Reject) (changed *events.Reject, keep bool) {
	if r.Seq < s.seq {
		if without, named := r.Without(s.user); named {
			return &without, true
		}
	}
	return r, true
}
