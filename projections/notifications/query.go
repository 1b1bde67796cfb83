package notifications

import (
	"errors"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// State has the rows of a store of notifications at one position. A [projections.View] is one.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers questions about a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	// keep is [Settings.Keep].
	keep int
	// scratch is memory for keys, reused by each read.
	scratch []byte
}

// NewQueries returns the queries over a state that was folded with these settings.
func NewQueries(state State, s Settings) *Queries { return &Queries{state: state, keep: s.Keep} }

// Notification is one notification of a user.
type Notification struct {
	Kind Kind
	// Pin is the recipient's pin, and Actor the user who reacted to it or re-pinned it. A
	// notification of kind Followed has no pin.
	Pin, Actor string
	// Item is the item of the reaction, or the item that the re-pin showed.
	Item string
	// Reaction is the kind of the reaction as in [events.Event], and Repin the actor's pin. Each is
	// set for one kind of notifications.
	Reaction, Repin string
	Since           events.Micros
}

// entryIterator iterates over the notifications of a user and a kind, newest first.
type entryIterator struct {
	it   projections.Iterator
	kind Kind
	// prefixLen is the length of the part of the keys that all entries have in common.
	prefixLen int
	// left is how many notifications of the kind may still be read, and maxSeq the sequence after
	// which they are left out.
	left   int
	maxSeq uint64
	// current is the notification at which the iterator is. It is valid if isValid is true, until
	// the next call of next.
	current entry
	isValid bool
	err     error
}

// newEntryIterator returns an iterator at the newest notification of a user and a kind. It leaves
// out the notifications of envelopes after maxSeq.
func (q *Queries) newEntryIterator(user string, kind Kind, maxSeq uint64) *entryIterator {
	q.scratch = kindPrefix(q.scratch[:0], tagEntry, user, kind)
	r := &entryIterator{
		it:        q.state.Iter(q.scratch, projections.PrefixEnd(q.scratch)),
		kind:      kind,
		prefixLen: len(q.scratch),
		// The store may have up to a quarter more. Which of these it still has depends on when it
		// last dropped some, so an answer leaves them out.
		left:   q.keep,
		maxSeq: maxSeq,
	}
	r.next()
	return r
}

// next moves to the next notification.
func (r *entryIterator) next() {
	r.isValid = false
	for r.err == nil && r.left > 0 && r.it.Next() {
		r.current, r.err = splitEntry(r.kind, r.it.Key()[r.prefixLen:], r.it.Value())
		if r.err == nil && r.current.seq <= r.maxSeq {
			r.left--
			r.isValid = true
			return
		}
	}
}

// close returns the first error of the iteration.
func (r *entryIterator) close() error {
	if err := r.it.Close(); r.err == nil {
		r.err = err
	}
	return r.err
}

// Newest returns the notifications of a user that the store has of a kind, newest first: at most
// [Settings.Keep].
func (q *Queries) Newest(user string, kind Kind) (list []Notification, err error) {
	r := q.newEntryIterator(user, kind, math.MaxUint64)
	for ; r.isValid; r.next() {
		n, err := r.current.notification(kind)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		list = append(list, n)
	}
	return list, r.close()
}

// notification decodes a row of the list.
func (e *entry) notification(kind Kind) (n Notification, err error) {
	n = Notification{Kind: kind, Since: e.since}
	if n.Pin, _, err = events.CutID(e.pin); err != nil {
		return n, err
	}
	if n.Actor, _, err = events.CutID(e.actor); err != nil {
		return n, err
	}
	if n.Item, _, err = events.CutID(e.item); err != nil {
		return n, err
	}
	n.Reaction, n.Repin, err = e.decodeDetail(kind)
	return n, err
}

// decodeDetail returns the kind of the reaction or the re-pin.
func (e *entry) decodeDetail(kind Kind) (reaction, repin string, err error) {
	id := factID{kind: kind}
	err = id.cutDetail(e.detail)
	return id.reaction, id.repin, err
}

// Markers are the times up to which a user has seen and read notifications. 0 means never.
type Markers struct {
	Seen, Read events.Micros
	// Groups has the times for single groups, by the ids of groups.
	Groups map[string]events.Micros
}

// Markers returns the markers of a user.
func (q *Queries) Markers(user string) (m Markers, err error) {
	state, err := readState(q.state, &q.scratch, user)
	if err != nil {
		return m, err
	}
	m.Seen = state.seen
	m.Read = state.read

	groups, err := readGroupMarkers(q.state, &q.scratch, user)
	if err != nil {
		return m, err
	}
	m.Groups = make(map[string]events.Micros, len(groups))
	for _, g := range groups {
		m.Groups[g.group] = g.time
	}
	return m, nil
}

// Seen returns the time up to which a user has seen notifications, with one point read.
func (q *Queries) Seen(user string) (events.Micros, error) {
	state, err := readState(q.state, &q.scratch, user)
	return state.seen, err
}
