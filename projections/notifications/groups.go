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

// ErrPageCursor is returned for bytes that are no page cursor.
var ErrPageCursor = errors.New("notifications: not a cursor of a page")

// MaxActors is how many actors a group names.
const MaxActors = 10

// Sources answers what groups need from other projections.
type Sources interface {
	// Pin returns a pin, and whether it lives.
	Pin(owner, id string) (p Pin, lives bool, err error)
	// Hides reports whether the user mutes the actor, or a block separates the two.
	Hides(user, actor string) (bool, error)
	// Followers returns at most n followers of a user, newest first, of those who follow since a
	// time or longer.
	Followers(ctx context.Context, user string, since events.Micros, n int) ([]Follower, error)
}

// Pin is what groups need to know of a living pin.
type Pin struct {
	Item string
	// RepinOwner and RepinPin name the pin that it repeats. They are empty if there is none.
	RepinOwner, RepinPin string
}

// Follower is a follower of a user.
type Follower struct {
	User  string
	Since events.Micros
}

// Group is the notifications of one kind, about one pin, of one day in UTC.
type Group struct {
	Kind Kind
	// Pin and Item are the recipient's pin, and the item that it shows. They are empty for
	// Followed.
	Pin, Item string
	// Day is the number of days since 1970.
	Day int64
	// Actors are the newest [MaxActors] users who did it, each once with the newest notification,
	// newest first. ActorCount is the number of all.
	Actors     []Notification
	ActorCount int
	// Newest is the time of the newest notification.
	Newest events.Micros
}

// kindLetters are the first letters of the ids of groups.
var kindLetters = [...]byte{Followed: 'f', Reacted: 'r', Repinned: 'p'}

// ID returns the id of the group: a letter for the kind, the day, and for most kinds a colon and
// the pin. It is part of events, so it never changes.
func (g *Group) ID() string {
	id := string(kindLetters[g.Kind]) + strconv.FormatInt(g.Day, 10)
	if g.Kind != Followed {
		id += ":" + g.Pin
	}
	return id
}

// IsUnseen reports whether the group has a notification that the user has not seen.
func (m *Markers) IsUnseen(g *Group) bool { return g.Newest > m.Seen }

// IsUnread reports whether the group has a notification that the user has not read.
func (m *Markers) IsUnread(g *Group) bool { return g.Newest > max(m.Read, m.Groups[g.ID()]) }

const dayMicros = 24 * 3600 * 1_000_000

func dayOf(t events.Micros) int64 { return int64(t / dayMicros) }

// PageCursor says where a list of groups continues after a page. It is opaque to callers.
//
// The groups of a session hold still (I9). A group stands where its newest visible notification
// puts it, so a notification that ends, or a user who is muted, would move it, and it could be
// shown twice. Groups never leave their day, however. So the cursor has the day at which the page
// ended, and says which groups of this day were shown. The next page begins with the groups of the
// day that were not.
type PageCursor []byte

// session is a decoded page cursor.
type session struct {
	// seq and time are the position and the log time at which the session began. What came later is
	// left out.
	seq  uint64
	time events.Micros
	// day is the day that continues: later days were shown. shown has the hashes of the groups of
	// the day that were shown.
	day   int64
	shown map[groupHash]bool
}

// groupHash identifies a group of one day in a page cursor. It is long enough that two groups of a
// user never share one: with a thousand groups on one day, the chance is one in 500 million.
type groupHash [6]byte

// newGroupHash returns the hash of a group. It leaves out the day, because the cursor names it.
func newGroupHash(g *Group) (h groupHash) {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], xxh3.HashStringSeed(g.Pin, uint64(g.Kind)))
	copy(h[:], sum[:])
	return h
}

// cursorVersion is the first byte of a page cursor.
const cursorVersion = 1

func (s *session) cursor() PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorVersion}, s.seq)
	cursor = binary.AppendUvarint(cursor, uint64(s.time))
	cursor = binary.AppendUvarint(cursor, uint64(s.day))

	// Equal sessions have equal cursors, so the order must not be that of the map.
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

// Groups returns a page of at most n groups of a user, newest first, equal times by kind and pin.
// after is the cursor of the page; nil means the first page. next is nil if there are no more
// groups. Groups fails with [ErrPageCursor].
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

		// Earlier pages have shown all later days. Of the day of the cursor they have shown some
		// groups, and of earlier days none.
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
				// s is at the day of this group, which is the first of the next page.
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

// CountUnseen returns how many groups of a user have a notification that the user has not seen, at
// most limit, and whether there are more. seen is the marker of the user. eachRepinner is called
// for the actors of the re-pins that were looked up, whose pins decide about the number.
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

// dayReader reads the groups of a user, day by day.
type dayReader struct {
	ctx  context.Context //nolint:containedctx // of the one query that the reader serves
	src  Sources
	user string
	// newerThan is the time up to which notifications are left out.
	newerThan events.Micros
	// followers are the followers that were not read yet, and stored the notifications of each of
	// storedKinds, all newest first.
	followers []Follower
	stored    [len(storedKinds)]*entryIterator
	// pins has the user's pins that were looked up, and actors the actors, by their encoded ids.
	// Most notifications are about few pins.
	pins   map[string]*pinState
	actors map[string]*actorState
	// groups are the groups of the day that is being read.
	groups []*groupBuilder
	// eachRepinner is called for the actor of each re-pin that was looked up; it may be nil.
	eachRepinner func(actor string)
	// groupsOnly says that only the existence of groups matters, so that addActors will not be
	// called.
	groupsOnly bool
	// readCount is how many notifications were read.
	readCount int
	// key is a buffer for an encoded id.
	key []byte
}

// groupBuilder is a group. A page has few of the groups of a crowded day, and only for those it
// needs to know which of their notifications the user may see. So a day is read only until each
// group has a visible notification, which gives the group its place. The others are copied, and
// addActors looks at them.
type groupBuilder struct {
	Group
	// rows has the newest visible notification and all that follow it, each as the key behind the
	// kind and the value. Each key and value has its length before it. followers has the same for
	// the kind Followed.
	rows      []byte
	followers []Follower
}

// pinState is a pin of the user, and whether it lives.
type pinState struct {
	Pin
	id    string
	lives bool
	// item is the encoded id of the item.
	item []byte
	// group is the last group that was made about the pin, perhaps of another kind or day.
	group *groupBuilder
}

// actorState is an actor, and whether the actor is hidden from the user.
type actorState struct {
	id     string
	hidden bool
}

// newDayReader returns a reader of the groups of a user that begins with the newest day. It leaves
// out what came after the session began, and what is not newer than newerThan.
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

func (d *dayReader) close() error { return errors.Join(d.stored[0].close(), d.stored[1].close()) }

// nextDay returns the groups of the next day that has visible notifications, in order, without
// their actors. It returns no groups at the end.
func (d *dayReader) nextDay() (day int64, groups []*groupBuilder, err error) {
	// All notifications of a day may be hidden from the user. The next day may have visible ones.
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

// readDay reads all notifications of a day.
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

// readFollowers reads all followers of a day, who are one group.
func (d *dayReader) readFollowers(day int64, begin events.Micros) error {
	end := 0
	for end < len(d.followers) && d.followers[end].Since >= begin {
		end++
	}
	ofDay := d.followers[:end]
	d.followers = d.followers[end:]

	// The newest visible follower gives the group its place. addActors looks at the others, if the
	// group is on a page.
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

// addEntry adds the notification at which an iterator is to its group. A notification of a pin that
// does not live, or that shows another item, is left out. The notifications of a kind are added
// newest first.
func (d *dayReader) addEntry(day int64, r *entryIterator) error {
	if err := d.countRead(); err != nil {
		return err
	}

	pin, err := d.lookUpPin(r.current.pin)
	if err != nil || !pin.lives || !bytes.Equal(pin.item, r.current.item) {
		return err
	}

	// A notification that the user may not see begins no group.
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

// addActors adds to a group the actors of its visible notifications.
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
			continue // with a newer notification
		}

		// The first notification is known to be visible.
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

// countRead counts a notification that is read. It returns the error of the context from time to
// time: a page reads a few thousand notifications at most.
func (d *dayReader) countRead() error {
	if d.readCount++; d.readCount%1024 == 0 {
		return d.ctx.Err()
	}
	return nil
}

// lookUpPin returns the pin of the user with an encoded id. It looks up each pin once.
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

// lookUpActor returns the actor with an encoded id. It looks up each actor once.
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

// hidesFollower reports whether a follower is hidden from the user.
func (d *dayReader) hidesFollower(f *Follower) (bool, error) {
	if err := d.countRead(); err != nil {
		return false, err
	}
	d.key = events.AppendID(d.key[:0], f.User)
	actor, err := d.lookUpActor(d.key)
	return err == nil && actor.hidden, err
}

// isVisible reports whether the user may see a notification about a pin that lives and shows the
// item: the user neither mutes the actor nor is separated from the actor by a block, and a re-pin
// lives and repeats the pin. The end of a re-pin need not name the pin that it repeated, and then
// its notification is still there.
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
