package erase

import (
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
)

// scrubber replaces a user's id by the pseudonym in all events up to and including the user's deletion. Later events with the id belong to a
// new user.
type scrubber struct {
	user, pseudonym string
	// seq and slot are the position of the deletion.
	seq  uint64
	slot uint16
	// remaining collects the kinds of texts in which scrubbed events still contain the id.
	remaining remainingTexts
}

// remainingTexts says in which kinds of texts of events the id remains. These texts are not ids of users. Rows of other users depend on most of
// them, so the scrubber cannot change them.
type remainingTexts struct {
	sources, items, boardsOrPins, titles, attributes bool
}

// addTextsOf adds the kinds of texts in which an event contains the user's id.
func (t *remainingTexts) addTextsOf(ev *events.Event, user string) {
	contains := func(text string) bool { return strings.Contains(text, user) }
	t.sources = t.sources || contains(ev.Source)
	t.items = t.items || contains(ev.Item) || slices.ContainsFunc(ev.Items, contains)
	t.boardsOrPins = t.boardsOrPins || contains(ev.Board) || contains(ev.Pin) || contains(ev.RepinPin)
	t.titles = t.titles || contains(ev.Title)
	t.attributes = t.attributes || contains(string(ev.Attributes))
}

// String lists the kinds of texts for people. It is empty if there are none.
func (t *remainingTexts) String() string {
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

// newScrubber returns a scrubber for the user whose deletion is at seq and slot.
func newScrubber(log events.LogID, user string, seq uint64, slot uint16) *scrubber {
	return &scrubber{user: user, pseudonym: events.NewKeyedHash(log).Pseudonym(user), seq: seq, slot: slot}
}

// scrubEvent returns the event without the user's id. It returns an event that does not name the user unchanged. keep is always true.
func (s *scrubber) scrubEvent(ev *events.Event) (changed *events.Event, keep bool) {
	if ev.Seq > s.seq || ev.Seq == s.seq && ev.Slot > s.slot {
		return ev, true
	}

	if ev.User != s.user && ev.Peer != s.user && ev.RepinUser != s.user {
		s.remaining.addTextsOf(ev, s.user)
		return ev, true
	}

	without := *ev
	for _, id := range []*string{&without.User, &without.Peer, &without.RepinUser} {
		if *id == s.user {
			*id = s.pseudonym
		}
	}
	if ev.User == s.user {
		// Only the user's own rows contain the titles that the user wrote and the items that were served to the user.
		without.Title, without.Items = "", nil
		if len(ev.Attributes) > 0 {
			// If two backfills of one pin have the same time, the attributes can decide which one counts. So they must not become empty.
			without.Attributes = []byte{0}
		}
	}

	if without.Encoded != nil {
		without.Encoded = without.Canonical()
	}
	s.remaining.addTextsOf(&without, s.user)
	return &without, true
}

// scrubReject returns a reject as folds keep it after the deletion: without the user's id. keep is always true.
func (s *scrubber) scrubReject(r *events.Reject) (changed *events.Reject, keep bool) {
	if r.Seq < s.seq {
		if without, named := r.RedactUser(s.user); named {
			return &without, true
		}
	}
	return r, true
}
