package erase

import (
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
)

// scrubber replaces a user's id in the events up to and including the user's deletion. Later events with that id belong to a new user.
type scrubber struct {
	user, pseudonym string
	// seq and slot are the position of the deletion.
	seq  uint64
	slot uint16
	// staying has the places in which scrubbed events still contain the id as text.
	staying stayingTexts
}

// stayingTexts says in which texts of events the id stays. These are not ids of users, and rows of other users depend on most of them, so
// the scrubber cannot replace them.
type stayingTexts struct {
	sources, items, boardsOrPins, titles, attributes bool
}

// look adds the texts of an event that contain the user's id.
func (t *stayingTexts) look(ev *events.Event, user string) {
	contains := func(text string) bool { return strings.Contains(text, user) }
	t.sources = t.sources || contains(ev.Source)
	t.items = t.items || contains(ev.Item) || slices.ContainsFunc(ev.Items, contains)
	t.boardsOrPins = t.boardsOrPins || contains(ev.Board) || contains(ev.Pin) || contains(ev.RepinPin)
	t.titles = t.titles || contains(ev.Title)
	t.attributes = t.attributes || contains(string(ev.Attributes))
}

// String lists the places for people; it is empty if there is none.
func (t *stayingTexts) String() string {
	var places []string
	for _, place := range []struct {
		name  string
		stays bool
	}{
		{"names of import sources", t.sources},
		{"item ids", t.items},
		{"ids of boards or pins", t.boardsOrPins},
		{"titles of boards of others", t.titles},
		{"attributes of pins of others", t.attributes},
	} {
		if place.stays {
			places = append(places, place.name)
		}
	}
	return strings.Join(places, ", ")
}

func newScrubber(log events.LogID, user string, seq uint64, slot uint16) *scrubber {
	return &scrubber{user: user, pseudonym: events.NewKeyedHash(log).Pseudonym(user), seq: seq, slot: slot}
}

// event returns an event without the user's id. An event that does not name the user is returned itself.
func (s *scrubber) event(ev *events.Event) (changed *events.Event, keep bool) {
	if ev.Seq > s.seq || ev.Seq == s.seq && ev.Slot > s.slot {
		return ev, true
	}
	if ev.User != s.user && ev.Peer != s.user && ev.RepinUser != s.user {
		s.staying.look(ev, s.user)
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
	s.staying.look(&without, s.user)
	return &without, true
}

// reject returns a reject in the form that folds keep after the deletion.
func (s *scrubber) reject(r *events.Reject) (changed *events.Reject, keep bool) {
	if r.Seq < s.seq {
		if without, named := r.RedactUser(s.user); named {
			return &without, true
		}
	}
	return r, true
}
