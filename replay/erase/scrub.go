package erase

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// erasedUser is a user of an erasure.
type erasedUser struct {
	id, pseudonym string
	// number is the place of the user in the list of the erasure, from 1. The report names the user
	// by it, and not by the id.
	number int
	// seq and slot are the position of the user's deletion. Later events with the id belong to a
	// new user.
	seq  uint64
	slot uint16
}

// isDeletedBefore reports whether the deletion is before an event.
func (u *erasedUser) isDeletedBefore(ev *events.Event) bool {
	return u.isDeletedBeforeSlot(ev.Seq, int(ev.Slot))
}

// isDeletedBeforeSlot reports whether the deletion is before what has this slot of an envelope.
func (u *erasedUser) isDeletedBeforeSlot(seq uint64, slot int) bool {
	return seq > u.seq || seq == u.seq && slot > int(u.slot)
}

// scrubber replaces the ids of users by their pseudonyms in all events up to and including the
// deletion of each user.
type scrubber struct {
	users []*erasedUser
	// byID has the users by their ids.
	byID map[string]*erasedUser
	// pseudonyms has the pseudonyms of all users. An erasure that was interrupted has left them in
	// events.
	pseudonyms map[string]bool
	// lastSeq is the greatest sequence of a deletion.
	lastSeq uint64
	finder  *textFinder
	// remaining collects the kinds of texts in which scrubbed events still contain an id.
	remaining   remainingTexts
	projections []projections.Projection
	// partitions has, by the name of a projection, the partitions to which events about the users
	// were delivered. The stores rebuild these.
	partitions map[string]events.Partitions
}

// newScrubber returns a scrubber for users whose deletions are in the log.
func newScrubber(users []*erasedUser, of []projections.Projection) *scrubber {
	s := &scrubber{
		users: users, byID: map[string]*erasedUser{}, pseudonyms: map[string]bool{},
		projections: of, partitions: map[string]events.Partitions{},
	}
	var ids []string
	for _, u := range users {
		s.byID[u.id] = u
		s.pseudonyms[u.pseudonym] = true
		s.lastSeq = max(s.lastSeq, u.seq)
		ids = append(ids, u.id)
	}
	s.finder = newTextFinder(ids)
	for _, p := range of {
		s.partitions[p.Name()] = events.Partitions{}
	}
	return s
}

// scrubEvent returns the event without the ids of the users. It returns an event that names none of
// them unchanged. keep is always true.
func (s *scrubber) scrubEvent(ev *events.Event) (changed *events.Event, keep bool) {
	if ev.Seq > s.lastSeq {
		return ev, true
	}

	changed = ev
	if s.isNamedBy(ev) {
		changed = s.withoutIDs(ev)
		s.addPartitions(changed)
	}
	s.addRemainingTexts(changed)
	return changed, true
}

// isNamedBy reports whether an event up to the deletion of a user names the user, or the pseudonym
// that an earlier run has left.
func (s *scrubber) isNamedBy(ev *events.Event) bool {
	for _, id := range [...]string{ev.User, ev.Peer, ev.RepinUser} {
		if id == "" {
			continue
		}
		u := s.byID[id]
		isErasedUser := u != nil && !u.isDeletedBefore(ev)
		if isErasedUser || s.pseudonyms[id] {
			return true
		}
	}
	return false
}

// withoutIDs returns a copy of the event with pseudonyms in place of the ids of the users, or the
// event itself if it has pseudonyms already.
func (s *scrubber) withoutIDs(ev *events.Event) *events.Event {
	without := *ev
	for _, id := range []*string{&without.User, &without.Peer, &without.RepinUser} {
		if u := s.byID[*id]; u != nil && !u.isDeletedBefore(ev) {
			*id = u.pseudonym
		}
	}
	if without.User == ev.User && without.Peer == ev.Peer && without.RepinUser == ev.RepinUser {
		return ev
	}

	if without.User != ev.User {
		// Only the user's own rows contain the titles that the user wrote and the items that were
		// served to the user.
		without.Title = ""
		without.Items = nil
		if len(ev.Attributes) > 0 {
			// If two backfills of one pin have the same time, the attributes can decide which one
			// counts. So they must not become empty.
			without.Attributes = []byte{0}
		}
	}
	if without.Encoded != nil {
		without.Encoded = without.Canonical()
	}
	return &without
}

// addPartitions adds the partitions to which an event about a user was delivered. A pseudonym has
// the partition of its user, so it does not matter whether the event was scrubbed before.
func (s *scrubber) addPartitions(ev *events.Event) {
	for _, p := range s.projections {
		if !slices.Contains(p.Kinds(), ev.Kind) {
			continue
		}
		var to events.Partitions
		projections.RouteRows(p, ev, &to)
		if to == events.AllPartitions() {
			// Only an event that ends something everywhere, such as a deletion, is delivered to all
			// partitions. Outside the user's own partition, such an event leaves keyed hashes and
			// no id. It removes rows there, but the events that wrote these rows were delivered to
			// the same partitions and are counted themselves (checkRowsWithIDs in the tests).
			to = events.Partitions{}
			to.AddHome(ev.User)
		}
		all := s.partitions[p.Name()]
		all.AddSet(&to)
		s.partitions[p.Name()] = all
	}
}

// scrubReject returns a reject as folds keep it after the deletions: without the ids of the users.
// keep is always true.
func (s *scrubber) scrubReject(r *events.Reject) (changed *events.Reject, keep bool) {
	changed = r
	for _, u := range s.users {
		if u.isDeletedBeforeSlot(r.Seq, r.Slot) {
			continue // it is about a new user
		}
		if without, named := changed.RedactUser(u.id); named {
			changed = &without
		}
	}
	return changed, true
}

// remainingTexts has, for each kind of text of events, the numbers of the users whose ids remain in
// such texts. These texts are not ids of users. Rows of other users depend on most of them, so the
// scrubber cannot change them.
type remainingTexts struct {
	sources, items, boardsOrPins, titles, attributes map[int]bool
}

// addRemainingTexts adds the kinds of texts in which an event contains the id of a user.
func (s *scrubber) addRemainingTexts(ev *events.Event) {
	add := func(to *map[int]bool, text string) {
		s.finder.eachID(text, func(i int) {
			if u := s.users[i]; !u.isDeletedBefore(ev) {
				if *to == nil {
					*to = map[int]bool{}
				}
				(*to)[u.number] = true
			}
		})
	}
	add(&s.remaining.sources, ev.Source)
	add(&s.remaining.items, ev.Item)
	for _, item := range ev.Items {
		add(&s.remaining.items, item)
	}
	add(&s.remaining.boardsOrPins, ev.Board)
	add(&s.remaining.boardsOrPins, ev.Pin)
	add(&s.remaining.boardsOrPins, ev.RepinPin)
	add(&s.remaining.titles, ev.Title)
	if len(ev.Attributes) > 0 {
		add(&s.remaining.attributes, string(ev.Attributes))
	}
}

// describe lists the kinds of texts for people, each with the numbers of the users if the erasure
// has several. It returns nothing if there are no such texts.
func (t *remainingTexts) describe(isBatch bool) string {
	var places []string
	for _, place := range []struct {
		name  string
		users map[int]bool
	}{
		{"names of import sources", t.sources},
		{"item ids", t.items},
		{"ids of boards or pins", t.boardsOrPins},
		{"titles of boards of others", t.titles},
		{"attributes of pins of others", t.attributes},
	} {
		if len(place.users) == 0 {
			continue
		}
		if isBatch {
			place.name += " (" + describeUsers(place.users) + ")"
		}
		places = append(places, place.name)
	}
	return strings.Join(places, ", ")
}

// describeUsers names users by their numbers in the list of the erasure, as in "of user 2, 5".
func describeUsers(numbers map[int]bool) string {
	const maxListed = 10 // people read the report
	sorted := slices.Sorted(maps.Keys(numbers))
	more := ""
	if len(sorted) > maxListed {
		more = fmt.Sprintf(" and %d more", len(sorted)-maxListed)
		sorted = sorted[:maxListed]
	}
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(sorted), "[]"), " ", ", ")
	return "of user " + list + more
}
