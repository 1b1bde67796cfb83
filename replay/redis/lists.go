package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// listKind is a list of the service, or a count.
type listKind byte

// The lists. Both sides of a relation are compared.
const (
	listFollowing listKind = iota + 1
	listFollowers
	listFollowedBoards
	listBoardFollowers
	listBoards
	listPins
	listBlocked
	listMuted
	listServed
	// The service has only counts of these.
	countPlaysOf
	countPlaysBy
	countLikesOf
)

// String returns the name of the list for people.
func (k listKind) String() string {
	return [...]string{
		"", "following", "followers", "followed boards", "followers of the board", "boards", "pins", "blocked", "muted", "served",
		"plays of", "plays by", "likes of",
	}[k]
}

func (k listKind) counted() bool { return k >= countPlaysOf }

// listOf names one list.
type listOf struct {
	kind         listKind
	owner, board string
}

// String returns the list for people.
func (l listOf) String() string {
	switch {
	case l.kind == listBoardFollowers:
		return fmt.Sprintf("%v %q of %s", l.kind, l.board, l.owner)
	case l.kind.counted():
		return fmt.Sprintf("%v %s", l.kind, l.owner)
	}
	return fmt.Sprintf("%v of %s", l.kind, l.owner)
}

// entry is an entry of a list: a user, a board of a user, a pin or an item.
type entry struct {
	list listOf
	// id is empty for a record of the list itself, which says that the list is to be queried.
	id, board string
	at        events.Micros
	// text is a title, or what else a pin has.
	text string
}

// name returns the entry for people.
func (e *entry) name() string {
	if e.list.kind == listFollowedBoards || e.list.kind == listBoards {
		return fmt.Sprintf("board %q of %s", e.board, e.id)
	}
	return e.id
}

// The encoding of an entry. In bytewise order, the records about one entry of a list are neighbors, on both sides:
//
//	list  owner 00 board 00 [id 00 board 00  time (8 bytes, big endian)  text]
func (e *entry) record() []byte {
	dst := []byte{byte(e.list.kind)}
	dst = append(append(dst, e.list.owner...), 0)
	dst = append(append(dst, e.list.board...), 0)
	if e.id == "" {
		return append(dst, e.text...)
	}
	dst = append(append(dst, e.id...), 0)
	dst = append(append(dst, e.board...), 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.at))
	return append(dst, e.text...)
}

func decodeEntry(record []byte) (entry, error) {
	var e entry
	if len(record) == 0 {
		return e, errRecord
	}
	e.list.kind = listKind(record[0])
	rest := record[1:]
	for i, into := range []*string{&e.list.owner, &e.list.board, &e.id, &e.board} {
		part, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			if i == 2 { // the list itself, perhaps with a count
				e.text = string(rest)
				return e, nil
			}
			return e, errRecord
		}
		*into, rest = string(part), after
	}
	if len(rest) < 8 {
		return e, errRecord
	}
	e.at, e.text = events.Micros(binary.BigEndian.Uint64(rest)), string(rest[8:])
	return e, nil
}

// entries calls do for each entry of a list that a fact makes.
func (f *fact) entries(do func(*entry) error) error {
	add := func(kind listKind, owner, ownBoard, id, board, text string) error {
		return do(&entry{list: listOf{kind, owner, ownBoard}, id: id, board: board, at: f.at, text: text})
	}
	switch f.kind {
	case events.UserFollowed:
		return errors.Join(add(listFollowing, f.user, "", f.peer, "", ""), add(listFollowers, f.peer, "", f.user, "", ""))
	case events.BoardFollowed:
		return errors.Join(f.mention(f.peer, do),
			add(listFollowedBoards, f.user, "", f.peer, f.board, ""), add(listBoardFollowers, f.peer, f.board, f.user, "", ""))
	case events.BoardCreated:
		return add(listBoards, f.user, "", f.user, f.board, f.text)
	case events.PinCreated:
		item := f.item
		if item == "" {
			item = f.pin
		}
		return errors.Join(f.mention(f.user, do), add(listPins, f.user, "", f.pin, "", pinText(f.board, item, f.text)))
	case events.UserBlocked:
		return add(listBlocked, f.user, "", f.peer, "", "")
	case events.UserMuted:
		return add(listMuted, f.user, "", f.peer, "", "")
	case events.Served:
		return add(listServed, f.user, "", f.item, "", "")
	case events.Liked:
		return add(countLikesOf, f.item, "", f.user, "", "")
	case events.Played:
		return errors.Join(add(countPlaysOf, f.item, "", f.user, "", ""), add(countPlaysBy, f.user, "", f.item, "", ""))
	}
	return nil
}

// mention calls do with the entry of a board, which begins with its first mention. The default board always exists, so it has none.
func (f *fact) mention(owner string, do func(*entry) error) error {
	if f.board == "" {
		return nil
	}
	return do(&entry{list: listOf{listBoards, owner, ""}, id: owner, board: f.board, at: f.at})
}

func pinText(board, item, attributes string) string {
	return strings.Join([]string{board, item, attributes}, "\x00")
}

// pinWords returns the properties of a pin beside its id, for people.
func pinWords(text string) string {
	parts := strings.SplitN(text+"\x00\x00", "\x00", 3)
	return fmt.Sprintf("board %q, item %s, attributes %q", parts[0], parts[1], strings.TrimRight(parts[2], "\x00"))
}

// group has all records of one side about one entry of a list.
type group struct {
	list      listOf
	id, board string
	// key is the sort key of groups.
	key []byte
	// timed is the number of distinct times; earliest and latest are the first and last of them. without reports whether there is a record
	// without a time.
	timed            int
	earliest, latest events.Micros
	without          bool
	// first is the text of the earliest record, last the latest text that is not empty.
	first, last string
}

// since returns the time that the entry must have; [timeless] means any time.
func (g *group) since() events.Micros {
	switch {
	case g.timed == 0:
		return timeless
	case g.list.kind == listBoards || g.list.kind == listPins:
		return g.earliest
	}
	return g.latest
}

// text returns the text that the entry must have.
func (g *group) text() string {
	if g.list.kind == listPins {
		return g.first
	}
	return g.last
}

// name returns the entry for people.
func (g *group) name() string { return (&entry{list: g.list, id: g.id, board: g.board}).name() }

// groups reads records as groups.
type groups struct {
	from records
	// ahead is the first entry after the last returned group.
	ahead *entry
}

func newGroups(from records) (*groups, error) {
	g := &groups{from: from}
	return g, g.advance()
}

func (g *groups) advance() error {
	record, err := nextOrNil(g.from)
	if err != nil || record == nil {
		g.ahead = nil
		return err
	}
	e, err := decodeEntry(record)
	g.ahead = &e
	return err
}

// next returns the next group, or nil after the last.
func (g *groups) next() (*group, error) {
	if g.ahead == nil {
		return nil, nil
	}
	e := g.ahead
	x := &group{list: e.list, id: e.id, board: e.board, key: e.key()}
	for {
		if e = g.ahead; e == nil || !bytes.Equal(e.key(), x.key) {
			return x, nil
		}
		switch {
		case e.id == "":
			x.first = e.text
		case e.at == timeless:
			x.without = true
			if x.timed == 0 {
				x.first = e.text
			}
		default:
			if x.timed == 0 {
				x.earliest, x.first = e.at, e.text
			}
			if x.timed == 0 || e.at != x.latest {
				x.timed++
			}
			x.latest = e.at
		}
		if e.text != "" {
			x.last = e.text
		}
		if err := g.advance(); err != nil {
			return nil, err
		}
	}
}

// key returns the sort key of an entry among those of all lists.
func (e *entry) key() []byte {
	k := (&entry{list: e.list, id: e.id, board: e.board}).record()
	if e.id == "" {
		return k
	}
	return k[:len(k)-8]
}
