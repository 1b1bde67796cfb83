package erase

import (
	"github.com/skein-feed/skein/events"
)

// scrubber replaces a user's id in the events up to and including the user's deletion. Later events with that id belong to a new user.
type scrubber struct {
	user, pseudonym string
	// seq and slot are the position of the deletion.
	seq  uint64
	slot uint16
}

func newScrubber(log events.LogID, user string, seq uint64, slot uint16) scrubber {
	return scrubber{user: user, pseudonym: events.NewKeyedHash(log).Pseudonym(user), seq: seq, slot: slot}
}

// event returns an event without the user's id. An event that does not name the user is returned itself.
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
		// Only the user's own rows have the titles that the user wrote and the items that the user was shown.
		without.Title, without.Items = "", nil
		if len(ev.Attributes) > 0 {
			// Whether a pin has attributes can decide which of two backfills of it with the same time counts.
			without.Attributes = []byte{0}
		}
	}
	if without.Encoded != nil {
		without.Encoded = without.Canonical()
	}
	return &without, true
}

// reject returns a reject in the form that folds keep after the deletion.
func (s scrubber) reject(r *events.Reject) (changed *events.Reject, keep bool) {
	if r.Seq < s.seq {
		if without, named := r.Without(s.user); named {
			return &without, true
		}
	}
	return r, true
}
