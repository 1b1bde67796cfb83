package notifications

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// ErrPageCursor is the error of [Queries.Groups] for bytes that are not a [PageCursor].
var ErrPageCursor = errors.New("notifications: not a cursor of a page")

// MaxActors is the largest number of actors that a group names. [Group.ActorCount] counts all.
const MaxActors = 10

// Sources answers the questions about pins, mutes, blocks and follows that groups depend on. Other
// projections have this data.
type Sources interface {
	// Pin returns a pin of an owner, and whether the pin lives. p is not used if the pin does not
	// live.
	Pin(owner, id string) (p Pin, lives bool, err error)
	// Hides reports whether the user mutes the actor, or a block separates the two.
	Hides(user, actor string) (bool, error)
	// Followers returns the users who have followed a user since the given time or an earlier one,
	// the newest follow first. It returns the first n of them.
	Followers(ctx context.Context, user string, since events.Micros, n int) ([]Follower, error)
}

// Pin is what groups need to know of a living pin.
type Pin struct {
	Item string
	// RepinOwner and RepinPin name the pin that this pin repeats. They are empty if this pin is not
	// a re-pin.
	RepinOwner, RepinPin string
}

// Follower is a user who follows another user, and the time since when.
type Follower struct {
	User  string
	Since events.Micros
}

// Group stands for the notifications of a recipient that have the same kind, pin and day in UTC.
// The notifications of kind Followed have no pin, so those of one day are one group. A group has
// only notifications that the recipient may see (mutes, blocks, and pins that ended hide others),
// and that are among the newest [Settings.Keep] of their kind.
type Group struct {
	Kind Kind
	// Pin is the recipient's pin, and Item the item that this pin shows. They are empty for kind
	// Followed.
	Pin, Item string
	// Day is the number of days since 1970-01-01.
	Day int64
	// Actors has the newest notification of each actor in the group, newest first, of at most
	// [MaxActors] actors. ActorCount is the number of all actors in the group.
	Actors     []Notification
	ActorCount int
	// Newest is the time of the newest notification.
	Newest events.Micros
}

// kindLetters has, for each kind, the letter with which the ids of its groups begin.
var kindLetters = [...]byte{Followed: 'f', Reacted: 'r', Repinned: 'p'}

// ID returns the id of the group: a letter for the kind, and the day; for Reacted and Repinned also
// a colon and the pin. Events in the log and rows with markers have such ids
// ([events.Event.Group]), so this format must never change.
func (g *Group) ID() string {
	id := string(kindLetters[g.Kind]) + strconv.FormatInt(g.Day, 10)
	if g.Kind != Followed {
		id += ":" + g.Pin
	}
	return id
}

// IsUnseen reports whether a group has a notification that its recipient has not seen. The markers
// must be those of the recipient.
func (m *Markers) IsUnseen(g *Group) bool { return g.Newest > m.Seen }

// IsUnread reports whether a group has a notification that its recipient has not read. The
// recipient has read a notification if the marker for all groups or the marker of this group has
// reached its time. The markers must be those of the recipient.
func (m *Markers) IsUnread(g *Group) bool { return g.Newest > max(m.Read, m.Groups[g.ID()]) }

const dayMicros = 24 * 3600 * 1_000_000

func dayOf(t events.Micros) int64 { return int64(t / dayMicros) }

// PageCursor says where a list of groups continues after a page. It is opaque to callers.
//
// A session, which is the pages that follow one another by their cursors, must not show a group
// twice (I9 in docs/invariants.md). A cursor with the time and id of the last group could not
// ensure this: the time of a group is that of its newest visible notification, so a group that was
// shown becomes older if this notification ends or if the user mutes its actor, and would then come
// again on a later page. But a group never leaves its day. So the cursor has the day at which the
// page ended, and a hash of each group of this day that the session has shown. The next page begins
// with the other groups of this day. If a mute ends, a group of a later day may become visible
// during the session. The session does not show such a group.
type PageCursor []byte

// session is a decoded page cursor.
type session struct {
	// seq and time are the position and the log time of the notifications store when the session
	// began. The session leaves out notifications that an envelope after seq wrote or moved, and
	// follows since a time after time. Follows have no sequence here, so a follow that is imported
	// during the session can appear.
	seq  uint64
	time events.Micros
	// day is the day with which the next page begins. The session is done with all later days.
	// shown has the hashes of the groups of day that the session has shown.
	day   int64
	shown map[groupHash]bool
}

// groupHash identifies a group within its day in a page cursor. If two groups of a user and a day
// had the same hash, a session would show only one of them. With a thousand groups on one day, the
// chance that any two have the same hash is one in 500 million.
type groupHash [6]byte

// newGroupHash returns the hash of the kind and the pin of a group. It leaves out the day, because
// all hashes in a cursor are about the day that the cursor names.
func newGroupHash(g *Group) (h groupHash) {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], xxh3.HashStringSeed(g.Pin, uint64(g.Kind)))
	copy(h[:], sum[:])
	return h
}

// cursorVersion is the first byte of a page cursor.
const cursorVersion = 1

// cursor encodes the session: the version, seq, time and day as varints, and the hashes of the
// groups that were shown, in ascending order.
func (s *session) cursor() PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorVersion}, s.seq)
	cursor = binary.AppendUvarint(cursor, uint64(s.time))
	cursor = binary.AppendUvarint(cursor, uint64(s.day))

	// Equal sessions must have equal cursors, and the order in which a map is iterated varies.
	hashes := make([]groupHash, 0, len(s.shown))
	for h := range s.shown {
		hashes = append(hashes, h)
	}
	slices.SortFunc(hashes, func(a, b groupHash) int { return slices.Compare(a[:], b[:]) })
	for _, h := range hashes {
		cursor = append(cursor, h[:]...)
	}
	return cursor
}

// parseCursor decodes a cursor that [session.cursor] encoded. It returns [ErrPageCursor] for other
// bytes.
func parseCursor(cursor PageCursor) (s session, err error) {
	if len(cursor) == 0 || cursor[0] != cursorVersion {
		return s, ErrPageCursor
	}
	rest := []byte(cursor[1:])
	var numbers [3]uint64
	for i := range numbers {
		n, size := projections.Uvarint(rest)
		if size <= 0 {
			return s, ErrPageCursor
		}
		numbers[i] = n
		rest = rest[size:]
	}
	if numbers[1] > math.MaxInt64 || numbers[2] > math.MaxInt64/dayMicros || len(rest)%len(groupHash{}) != 0 {
		return s, ErrPageCursor
	}
	s = session{seq: numbers[0], time: events.Micros(numbers[1]), day: int64(numbers[2]), shown: map[groupHash]bool{}}
	for hash := range slices.Chunk(rest, len(groupHash{})) {
		s.shown[groupHash(hash)] = true
	}
	return s, nil
}

// Groups returns a page of at most n groups of a user. The order is that of [Group.Newest], newest
// first; groups with the same time are in the order of kind and pin. after is the next of the page
// before, or nil for the first page. next is nil if no groups follow this page. The error is
// [ErrPageCursor] if after is not a page cursor.
//
// Every page reads the notifications from the newest day on, and skips the days that earlier pages
// have shown.
func (q *Queries) Groups(
	ctx context.Context, src Sources, user string, after PageCursor, n int,
) (page []Group, next PageCursor, err error) {
	cursor := q.state.Cursor()
	s := session{seq: cursor.Seq, time: cursor.LastTime, day: math.MaxInt64}
	if after != nil {
		if s, err = parseCursor(after); err != nil {
			return nil, nil, err
		}
	}

	d, err := q.newDayReader(ctx, src, user, &s, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()

	for {
		day, groups, err := d.nextDay()
		if err != nil || groups == nil {
			return page, nil, err
		}

		// Earlier pages are done with the days after s.day. They have shown the groups in s.shown
		// of the day s.day, and no group of an earlier day.
		if day > s.day {
			continue
		}
		if day < s.day {
			s.day = day
			s.shown = map[groupHash]bool{}
		}

		for _, group := range groups {
			hash := newGroupHash(&group.Group)
			if s.shown[hash] {
				continue
			}
			if len(page) == n {
				// This group is the first of the next page, and its day is s.day.
				return page, s.cursor(), nil
			}
			if err := d.addActors(group); err != nil {
				return nil, nil, err
			}
			page = append(page, group.Group)
			s.shown[hash] = true
		}
	}
}

// CountUnseen returns how many groups of a user have a notification that the user has not seen. It
// counts up to limit, and more reports whether there are more such groups. seen is [Markers.Seen]
// of the user.
//
// CountUnseen calls eachRepinner, unless it is nil, with the actor of each re-pin that it looks up.
// The count can change when such a re-pin ends, so a caller that keeps the count up to date must
// watch the pins of these actors. eachRepinner may get an actor several times.
func (q *Queries) CountUnseen(
	ctx context.Context, src Sources, user string, seen events.Micros, limit int, eachRepinner func(actor string),
) (count int, more bool, err error) {
	cursor := q.state.Cursor()
	d, err := q.newDayReader(ctx, src, user, &session{seq: cursor.Seq, time: cursor.LastTime}, seen)
	if err != nil {
		return 0, false, err
	}
	d.eachRepinner = eachRepinner
	d.groupsOnly = true
	defer func() { err = errors.Join(err, d.close()) }()

	for {
		_, groups, err := d.nextDay()
		if err != nil || groups == nil {
			return count, false, err
		}
		if count += len(groups); count > limit {
			return limit, true, nil
		}
	}
}

// dayReader reads the groups of a user, day by day, from the newest day on.
type dayReader struct {
	ctx  context.Context //nolint:containedctx // of the one query that the reader serves
	src  Sources
	user string
	// The reader leaves out notifications with a time that is not after newerThan.
	newerThan events.Micros
	// followers has the followers that nextDay has not reached yet. stored has, for each of
	// storedKinds, an iterator at the first notification that nextDay has not reached. Both are
	// newest first.
	followers []Follower
	stored    [len(storedKinds)]*entryIterator
	// pins has the user's pins that the reader has looked up, and actors the actors, by their
	// encoded ids. Most notifications are about few pins, so this saves most lookups.
	pins   map[string]*pinState
	actors map[string]*actorState
	// groups has the groups of the day that is being read. The next day reuses its memory.
	groups []*groupBuilder
	// isVisible calls eachRepinner, unless it is nil, with the actor of each re-pin that isVisible
	// looks up.
	eachRepinner func(actor string)
	// groupsOnly says that the query needs no actors. The query does not call addActors then, so
	// addEntry does not copy the rows that addActors would read.
	groupsOnly bool
	// readCount is the number of calls of countRead.
	readCount int
	// key is the buffer in which hidesFollower encodes an id.
	key []byte
}

// groupBuilder is a group whose actors may still be missing. readDay reads all notifications of a
// day, but asks whether the user may see a notification only until the group has a visible one. The
// time of this one gives the group its place in the list. The older ones are only kept, because
// most groups of a crowded day are not on the page. For a group that is on the page, addActors asks
// whether the user may see the older ones, and adds their actors.
type groupBuilder struct {
	Group
	// rows has the list rows of the newest visible notification and of all older ones of the group,
	// newest first. For each row, it has the part of the key that follows the kind, and the value,
	// each after its length as a varint. followers has these notifications for a group of kind
	// Followed.
	rows      []byte
	followers []Follower
}

// pinState is what a dayReader knows about a pin of the user.
type pinState struct {
	Pin
	id    string
	lives bool
	// item is the encoded id of the item that the pin shows.
	item []byte
	// group is the group about the pin that the reader made last, or nil. It may be of another kind
	// or a later day than the one that is being read.
	group *groupBuilder
}

// actorState is an actor, and whether the actor is hidden from the user by a mute or a block.
type actorState struct {
	id     string
	hidden bool
}

// newDayReader returns a reader of the groups of a user. The reader leaves out what the session
// leaves out (see session), and notifications with a time that is not after newerThan. Of each kind
// it reads the newest [Settings.Keep] notifications. The caller must close the reader.
func (q *Queries) newDayReader(
	ctx context.Context, src Sources, user string, s *session, newerThan events.Micros,
) (*dayReader, error) {
	followers, err := src.Followers(ctx, user, s.time, q.keep)
	if err != nil {
		return nil, err
	}
	d := &dayReader{
		ctx: ctx, src: src, user: user, newerThan: newerThan, followers: followers,
		pins: map[string]*pinState{}, actors: map[string]*actorState{},
	}
	for i, kind := range storedKinds {
		d.stored[i] = q.newEntryIterator(user, kind, s.seq)
	}
	return d, nil
}

// close closes the iterators. It returns the first error of each of them.
func (d *dayReader) close() error { return errors.Join(d.stored[0].close(), d.stored[1].close()) }

// nextDay returns the groups of the next older day that has visible notifications. They are in the
// order of [Queries.Groups], and have no actors yet (addActors). The slice is valid until the next
// call of nextDay. groups is nil if there is no such day.
func (d *dayReader) nextDay() (day int64, groups []*groupBuilder, err error) {
	// If all notifications of a day are hidden from the user, continue with the day before it.
	for len(groups) == 0 {
		newest := events.Micros(-1)
		if len(d.followers) > 0 {
			newest = d.followers[0].Since
		}
		for _, r := range d.stored {
			if r.err != nil {
				return 0, nil, r.err
			}
			if r.isValid {
				newest = max(newest, r.current.since)
			}
		}
		if newest <= d.newerThan {
			return 0, nil, nil
		}

		day = dayOf(newest)
		if groups, err = d.readDay(day); err != nil {
			return 0, nil, err
		}
	}
	return day, groups, nil
}

// readDay reads all notifications of a day that are newer than newerThan, and returns their groups
// as nextDay does. The reader must have reached the day: it has read all later days.
func (d *dayReader) readDay(day int64) ([]*groupBuilder, error) {
	begin := max(events.Micros(day*dayMicros), d.newerThan+1)
	d.groups = d.groups[:0]
	if err := d.readFollowers(day, begin); err != nil {
		return nil, err
	}
	for _, r := range d.stored {
		for ; r.isValid && r.current.since >= begin; r.next() {
			if err := d.addEntry(day, r); err != nil {
				return nil, err
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}

	slices.SortFunc(d.groups, func(x, y *groupBuilder) int {
		return cmp.Or(cmp.Compare(y.Newest, x.Newest), cmp.Compare(x.Kind, y.Kind), events.CompareIDs(x.Pin, y.Pin))
	})
	return d.groups, nil
}

// readFollowers reads the followers of a day since begin, and adds their group to d.groups, unless
// all of them are hidden from the user.
func (d *dayReader) readFollowers(day int64, begin events.Micros) error {
	end := 0
	for end < len(d.followers) && d.followers[end].Since >= begin {
		end++
	}
	ofDay := d.followers[:end]
	d.followers = d.followers[end:]

	// The newest visible follower gives the group its place, so the search ends there. addActors
	// looks at the others if the group is on a page.
	for i := range ofDay {
		hidden, err := d.hidesFollower(&ofDay[i])
		if err != nil {
			return err
		}
		if !hidden {
			group := Group{Kind: Followed, Day: day, Newest: ofDay[i].Since}
			d.groups = append(d.groups, &groupBuilder{Group: group, followers: ofDay[i:]})
			return nil
		}
	}
	return nil
}

// addEntry adds the notification at which an iterator stands to its group. If the group does not
// exist yet, addEntry makes it, provided that the user may see the notification. addEntry leaves
// out the notification if its pin does not live, or shows another item than the notification names.
//
// The caller must add all notifications of one kind and day before those of the next kind, newest
// first: addEntry finds a group only if it is the last one that was made about its pin, and the
// notification that makes a group gives the group its time.
func (d *dayReader) addEntry(day int64, r *entryIterator) error {
	if err := d.countRead(); err != nil {
		return err
	}

	pin, err := d.lookUpPin(r.current.pin)
	if err != nil || !pin.lives || !bytes.Equal(pin.item, r.current.item) {
		return err
	}

	group := pin.group
	isOfGroup := group != nil && group.Kind == r.kind && group.Day == day
	if !isOfGroup {
		visible, err := d.isVisible(r.kind, &r.current, pin.id)
		if err != nil || !visible {
			return err
		}
		group = &groupBuilder{Group: Group{Kind: r.kind, Pin: pin.id, Item: pin.Item, Day: day, Newest: r.current.since}}
		pin.group = group
		d.groups = append(d.groups, group)
	}

	if !d.groupsOnly {
		for _, part := range [][]byte{r.it.Key()[r.prefixLen:], r.it.Value()} {
			group.rows = append(binary.AppendUvarint(group.rows, uint64(len(part))), part...)
		}
	}
	return nil
}

// addActors sets Actors and ActorCount of a group, from its visible notifications. The caller must
// call it at most once for a group.
func (d *dayReader) addActors(g *groupBuilder) error {
	for i := range g.followers {
		f := &g.followers[i]
		hidden, err := d.hidesFollower(f)
		if err != nil {
			return err
		}
		if !hidden {
			g.ActorCount++
			if len(g.Actors) < MaxActors {
				g.Actors = append(g.Actors, Notification{Kind: Followed, Actor: f.User, Since: f.Since})
			}
		}
	}

	counted := map[*actorState]bool{}
	for r := (fields.Reader{Rest: g.rows}); len(r.Rest) > 0; {
		if err := d.countRead(); err != nil {
			return err
		}
		key := r.Bytes()
		value := r.Bytes()
		e, err := splitEntry(g.Kind, key, value)
		if err != nil {
			return err
		}
		actor, err := d.lookUpActor(e.actor)
		if err != nil {
			return err
		}
		if counted[actor] {
			continue // a newer notification of this actor has been counted
		}

		// addEntry has found that the first notification, which made the group, is visible.
		if len(counted) > 0 {
			visible, err := d.isVisible(g.Kind, &e, g.Pin)
			if err != nil {
				return err
			}
			if !visible {
				continue
			}
		}

		counted[actor] = true
		if len(g.Actors) < MaxActors {
			n, err := e.notification(g.Kind)
			if err != nil {
				return err
			}
			g.Actors = append(g.Actors, n)
		}
	}
	g.ActorCount += len(counted)
	return nil
}

// countRead must be called for each notification that the reader looks at. At every 1024th call it
// returns the error of the context, so that a query ends soon after its context does. A query makes
// at most about six times [Settings.Keep] calls, because there are three kinds and addActors looks
// at notifications again.
func (d *dayReader) countRead() error {
	if d.readCount++; d.readCount%1024 == 0 {
		return d.ctx.Err()
	}
	return nil
}

// lookUpPin returns the pin of the user with an encoded id. It asks src only once about each pin.
func (d *dayReader) lookUpPin(encoded []byte) (*pinState, error) {
	if pin := d.pins[string(encoded)]; pin != nil {
		return pin, nil
	}

	id, _, err := events.CutID(encoded)
	if err != nil {
		return nil, err
	}
	pin := &pinState{id: id}
	if pin.Pin, pin.lives, err = d.src.Pin(d.user, id); err != nil {
		return nil, err
	}
	pin.item = events.AppendID(nil, pin.Item)
	d.pins[string(encoded)] = pin
	return pin, nil
}

// lookUpActor returns the actor with an encoded id. It asks src only once about each actor.
func (d *dayReader) lookUpActor(encoded []byte) (*actorState, error) {
	if actor := d.actors[string(encoded)]; actor != nil {
		return actor, nil
	}

	id, _, err := events.CutID(encoded)
	if err != nil {
		return nil, err
	}
	actor := &actorState{id: id}
	if actor.hidden, err = d.src.Hides(d.user, id); err != nil {
		return nil, err
	}
	d.actors[string(encoded)] = actor
	return actor, nil
}

// hidesFollower reports whether a follower is hidden from the user by a mute or a block.
func (d *dayReader) hidesFollower(f *Follower) (bool, error) {
	if err := d.countRead(); err != nil {
		return false, err
	}
	d.key = events.AppendID(d.key[:0], f.User)
	actor, err := d.lookUpActor(d.key)
	return err == nil && actor.hidden, err
}

// isVisible reports whether the user may see a notification about the pin. The user may not see it
// while the user mutes the actor or a block separates the two. A notification about a re-pin is
// also not visible if the re-pin does not live or does not repeat the pin any more. Its list row
// may exist all the same, because a pin_deleted that does not name the pin that was repeated leaves
// the row. isVisible does not check whether the pin itself lives and shows the item; addEntry does.
func (d *dayReader) isVisible(kind Kind, e *entry, pin string) (bool, error) {
	actor, err := d.lookUpActor(e.actor)
	if err != nil || actor.hidden {
		return false, err
	}
	if kind != Repinned {
		return true, nil
	}

	_, repin, err := e.decodeDetail(kind)
	if err != nil {
		return false, err
	}
	if d.eachRepinner != nil {
		d.eachRepinner(actor.id)
	}
	found, lives, err := d.src.Pin(actor.id, repin)
	return lives && found.RepinOwner == d.user && found.RepinPin == pin, err
}
