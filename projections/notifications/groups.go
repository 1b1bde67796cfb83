package notifications

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
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
	// Followers returns at most n followers of a user, newest first, of those who follow since a time or longer.
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
	// Pin and Item are the recipient's pin, and the item that it shows. They are empty for Followed.
	Pin, Item string
	// Day is the number of days since 1970.
	Day int64
	// Actors are the newest [MaxActors] users who did it, each once with the newest notification, newest first. ActorCount is the number of all.
	Actors     []Notification
	ActorCount int
	// Newest is the time of the newest notification.
	Newest events.Micros
}

// kindLetters are the first letters of the ids of groups.
var kindLetters = [...]byte{Followed: 'f', Reacted: 'r', Repinned: 'p'}

// ID returns the id of the group: a letter for the kind, the day, and for most kinds a colon and the pin. It is part of events, so it never
// changes.
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
// The groups of a session hold still (I9). A group stands where its newest visible notification puts it, so a notification that ends, or a user
// who is muted, would move it, and it could be shown twice. Groups never leave their day, however. So the cursor has the day at which the
// page ended, and says which groups of this day were shown. The next page begins with the groups of the day that were not.
type PageCursor []byte

// session is a page cursor, decoded.
type session struct {
	// seq and time are the position and the log time at which the session began. What came later is left out.
	seq  uint64
	time events.Micros
	// day is the day that continues: later days were shown. shown has the hashes of the groups of the day that were shown.
	day   int64
	shown map[groupHash]bool
}

// groupHash identifies a group of one day in a page cursor. It is long enough that two groups of a user never share one: with a thousand
// groups on one day, the chance is one in 500 million.
type groupHash [6]byte

func hashOf(g *Group) (h groupHash) {
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
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return s, ErrPageCursor
		}
		numbers[i], rest = n, rest[size:]
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

// Groups returns a page of at most n groups of a user, newest first, equal times by kind and pin. after is the cursor of the page; nil means the
// first page. next is nil if there are no more groups. Groups fails with [ErrPageCursor].
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
		if day > s.day {
			continue
		}
		if day < s.day {
			s.day, s.shown = day, map[groupHash]bool{}
		}
		for i := range groups {
			hash := hashOf(&groups[i])
			if s.shown[hash] {
				continue
			}
			if len(page) == n {
				// s is at the day of this group, which is the first of the next page.
				return page, s.cursor(), nil
			}
			page = append(page, groups[i])
			s.shown[hash] = true
		}
	}
}

// CountUnseen returns how many groups of a user have a notification that the user has not seen, at most limit, and whether there are more. seen is
// the marker of the user. eachRepinner is called for the actors of the re-pins that were looked up, whose pins decide about the number.
func (q *Queries) CountUnseen(
	ctx context.Context, src Sources, user string, seen events.Micros, limit int, eachRepinner func(actor string),
) (count int, more bool, err error) {
	cursor := q.state.Cursor()
	d, err := q.newDayReader(ctx, src, user, &session{seq: cursor.Seq, time: cursor.LastTime}, seen)
	if err != nil {
		return 0, false, err
	}
	d.eachRepinner, d.groupsOnly = eachRepinner, true
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

// dayReader reads the visible notifications of a user, day by day.
type dayReader struct {
	ctx  context.Context //nolint:containedctx // of the one query that the reader serves
	src  Sources
	user string
	// newerThan is the time up to which notifications are left out.
	newerThan events.Micros
	// followers are the followers that were not read yet, and stored the notifications of each of storedKinds, all newest first.
	followers []Follower
	stored    [len(storedKinds)]*entryIterator
	// pins has the user's pins that were looked up, by id, and hidden whether each actor that was looked up is hidden from the user. Most
	// notifications are about few pins.
	pins   map[string]pinState
	hidden map[string]bool
	// eachRepinner is called for the actor of each re-pin that was looked up; it may be nil.
	eachRepinner func(actor string)
	// groupsOnly says that only the existence of groups matters. The first visible notification of a group is enough then, so that the others
	// are not looked up, and the actors of the group are not complete.
	groupsOnly bool
	// readCount is how many notifications were read.
	readCount int
}

// pinState is a pin, and whether it lives.
type pinState struct {
	Pin
	lives bool
}

func (q *Queries) newDayReader(ctx context.Context, src Sources, user string, s *session, newerThan events.Micros) (*dayReader, error) {
	followers, err := src.Followers(ctx, user, s.time, q.keep)
	if err != nil {
		return nil, err
	}
	d := &dayReader{
		ctx: ctx, src: src, user: user, newerThan: newerThan, followers: followers,
		pins: map[string]pinState{}, hidden: map[string]bool{},
	}
	for i, kind := range storedKinds {
		d.stored[i] = q.newEntries(user, kind, s.seq)
	}
	return d, nil
}

func (d *dayReader) close() error { return errors.Join(d.stored[0].close(), d.stored[1].close()) }

// nextDay returns the groups of the next day that has visible notifications, in order. It returns no groups at the end.
func (d *dayReader) nextDay() (day int64, groups []Group, err error) {
	for groups == nil {
		newest := events.Micros(-1)
		if len(d.followers) > 0 {
			newest = d.followers[0].Since
		}
		for _, r := range d.stored {
			if r.err != nil {
				return 0, nil, r.err
			}
			if r.isValid {
				newest = max(newest, r.current.Since)
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

// groupKey tells apart the groups of one day.
type groupKey struct {
	kind Kind
	pin  string
}

// groupBuilder is a group while its notifications are added.
type groupBuilder struct {
	Group
	actors map[string]bool
}

// readDay reads all notifications of a day.
func (d *dayReader) readDay(day int64) ([]Group, error) {
	begin := max(events.Micros(day*dayMicros), d.newerThan+1)
	builders := map[groupKey]*groupBuilder{}
	for ; len(d.followers) > 0 && d.followers[0].Since >= begin; d.followers = d.followers[1:] {
		f := d.followers[0]
		if err := d.add(builders, day, Notification{Kind: Followed, Actor: f.User, Since: f.Since}); err != nil {
			return nil, err
		}
	}
	for _, r := range d.stored {
		for ; r.isValid && r.current.Since >= begin; r.next() {
			if err := d.add(builders, day, r.current); err != nil {
				return nil, err
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}

	var groups []Group
	for _, b := range builders {
		b.ActorCount = len(b.actors)
		groups = append(groups, b.Group)
	}
	slices.SortFunc(groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Newest, x.Newest), cmp.Compare(x.Kind, y.Kind), events.CompareIDs(x.Pin, y.Pin))
	})
	return groups, nil
}

// add adds a notification to its group, if the user may see it. The notifications of a kind are added newest first.
func (d *dayReader) add(builders map[groupKey]*groupBuilder, day int64, n Notification) error {
	// A page reads a few thousand notifications at most, so it is enough to ask the context from time to time.
	if d.readCount++; d.readCount%1024 == 0 && d.ctx.Err() != nil {
		return d.ctx.Err()
	}

	key := groupKey{n.Kind, n.Pin}
	b := builders[key]
	if b != nil && d.groupsOnly {
		return nil
	}
	visible, err := d.isVisible(&n)
	if err != nil || !visible {
		return err
	}

	if b == nil {
		b = &groupBuilder{Group: Group{Kind: n.Kind, Pin: n.Pin, Item: n.Item, Day: day, Newest: n.Since}, actors: map[string]bool{}}
		builders[key] = b
	}
	if !b.actors[n.Actor] {
		b.actors[n.Actor] = true
		if len(b.Actors) < MaxActors {
			b.Actors = append(b.Actors, n)
		}
	}
	return nil
}

// isVisible reports whether the user may see a notification: its pin lives and shows its item, its re-pin lives and names the pin, and the user
// neither mutes the actor nor is separated from the actor by a block.
func (d *dayReader) isVisible(n *Notification) (bool, error) {
	if n.Kind != Followed {
		pin, ok := d.pins[n.Pin]
		if !ok {
			var err error
			if pin.Pin, pin.lives, err = d.src.Pin(d.user, n.Pin); err != nil {
				return false, err
			}
			d.pins[n.Pin] = pin
		}
		if !pin.lives || pin.Item != n.Item {
			return false, nil
		}
	}

	hidden, ok := d.hidden[n.Actor]
	if !ok {
		var err error
		if hidden, err = d.src.Hides(d.user, n.Actor); err != nil {
			return false, err
		}
		d.hidden[n.Actor] = hidden
	}
	if hidden || n.Kind != Repinned {
		return !hidden, nil
	}

	// The end of a re-pin need not name the pin that it repeated, and then the notification is still there.
	if d.eachRepinner != nil {
		d.eachRepinner(n.Actor)
	}
	repin, lives, err := d.src.Pin(n.Actor, n.Repin)
	return lives && repin.RepinOwner == d.user && repin.RepinPin == n.Pin, err
}
