package comparison

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Timeless is the time of an entry for which the source has no time. It sorts after every other
// time, and it matches any time of the service.
const Timeless = events.Micros(math.MaxInt64)

// ListKind is a kind of list or count that the service has.
type ListKind byte

// The kinds of lists, followed by those of counts. Only temporary files contain the numbers, so
// they may change. For each owner, the counts of follows must sort after the lists that they count.
const (
	// Following and Followers have explicit follows. ImplicitFollowing and ImplicitFollowers have
	// those who follow through a board.
	Following ListKind = iota + 1
	Followers
	ImplicitFollowing
	ImplicitFollowers
	FollowedBoards
	BoardFollowers
	Boards
	Blocked
	Muted
	// followCounts and boardFollowCounts are the counts of the lists above. Only answers have them.
	followCounts
	boardFollowCounts
	Pins
	BoardPins
	Served
	// HiddenItems are the items that a user hides.
	HiddenItems
	// PlaysOf counts the plays of an item, PlaysBy those by a user, and ReactionsOf the users who
	// react to an item with a kind, which is the Board of the list.
	PlaysOf
	PlaysBy
	ReactionsOf
)

var listNames = [...]string{
	Following: "following", Followers: "followers", ImplicitFollowing: "following by boards", ImplicitFollowers: "followers by boards",
	FollowedBoards: "followed boards", BoardFollowers: "followers of the board", Boards: "boards", Blocked: "blocked", Muted: "muted",
	followCounts: "counts", boardFollowCounts: "counts of the board", Pins: "pins", BoardPins: "pins of the board", Served: "served",
	HiddenItems: "hidden items",
	PlaysOf:     "plays of", PlaysBy: "plays by", ReactionsOf: "reactions to",
}

// String returns the name of the kind for people.
func (k ListKind) String() string { return listNames[k] }

// isCount reports whether the service only returns the number of entries, not the entries.
func (k ListKind) isCount() bool { return k >= PlaysOf }

// isFollowList reports whether the entries are follows. They have no effect while one of the two
// users blocks the other.
func (k ListKind) isFollowList() bool { return k <= BoardFollowers }

// isOfBoard reports whether the list is one of a board, instead of a user or an item.
func (k ListKind) isOfBoard() bool {
	return k == BoardFollowers || k == BoardPins || k == boardFollowCounts
}

// List identifies a list or count: one of a user, of an item, or of a board of a user.
type List struct {
	Kind         ListKind
	Owner, Board string
}

// String returns the list for people.
func (l List) String() string {
	switch {
	case l.Kind.isOfBoard():
		return fmt.Sprintf("%v %q of %s", l.Kind, l.Board, l.Owner)
	case l.Kind == ReactionsOf:
		return fmt.Sprintf("%v %s with %s", l.Kind, l.Owner, events.ReactionName(l.Board))
	case l.Kind.isCount():
		return fmt.Sprintf("%v %s", l.Kind, l.Owner)
	}
	return fmt.Sprintf("%v of %s", l.Kind, l.Owner)
}

// Entry is an entry of a list: a user, a board of a user, a pin or an item.
type Entry struct {
	List List
	// ID is empty if the Entry stands for the list itself: the list is then queried even if none of
	// its entries is expected.
	ID, Board string
	// At is the time of the fact that makes the entry; or Timeless.
	At events.Micros
	// Text depends on the kind of list: a [TitleText] or a [PinText]; for an implicit follow, the
	// board; for plays, what distinguishes several plays at the same time.
	Text string
}

// ReactionEntries returns the entries that a reaction makes: one of the users who react to the
// item. There is none for a private kind, which the service does not count. The kind is as the
// source names it.
func ReactionEntries(user, item, kind string, at events.Micros) []Entry {
	if events.IsPrivateReaction(kind) {
		return nil
	}
	return []Entry{{List: List{Kind: ReactionsOf, Owner: item, Board: events.ReactionOf(kind)}, ID: user, At: at}}
}

// name returns the name of the entry for people.
func (e *Entry) name() string {
	if e.List.Kind == FollowedBoards || e.List.Kind == Boards {
		return fmt.Sprintf("board %q of %s", e.Board, e.ID)
	}
	return e.ID
}

// errDamagedRecord means that a record in a temporary file cannot be decoded.
var errDamagedRecord = errors.New("comparison: a record of an entry is damaged")

// appendTo appends the encoding of the list to dst. Encodings sort by owner, board and kind, so the
// counts of a user come after the user's lists.
//
//	owner 00 board 00 kind
func (l List) appendTo(dst []byte) []byte {
	dst = append(append(dst, l.Owner...), 0)
	dst = append(append(dst, l.Board...), 0)
	return append(dst, byte(l.Kind))
}

// encode returns the encoding of an entry. If encodings are sorted bytewise, all records about the
// same entry of a list are neighbors, in the order of their times. The record of the list itself
// comes first; its text must not have zero bytes.
//
//	list [id 00 board 00  time (8 bytes, big endian)]  text
func (e *Entry) encode() []byte {
	dst := e.sortKey()
	if e.ID != "" {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.At))
	}
	return append(dst, e.Text...)
}

// sortKey returns the common prefix of all records about the same entry.
func (e *Entry) sortKey() []byte {
	dst := e.List.appendTo(nil)
	if e.ID == "" {
		return dst
	}
	dst = append(append(dst, e.ID...), 0)
	return append(append(dst, e.Board...), 0)
}

// decodeEntry is the inverse of encode.
func decodeEntry(record []byte) (Entry, error) {
	var e Entry
	owner, rest, hasOwner := bytes.Cut(record, []byte{0})
	board, rest, hasBoard := bytes.Cut(rest, []byte{0})
	if !hasOwner || !hasBoard || len(rest) == 0 {
		return e, errDamagedRecord
	}
	e.List = List{ListKind(rest[0]), string(owner), string(board)}
	rest = rest[1:]

	// A record of the list itself has no zero byte after the list.
	id, rest, hasID := bytes.Cut(rest, []byte{0})
	if !hasID {
		e.Text = string(id)
		return e, nil
	}
	second, rest, hasSecond := bytes.Cut(rest, []byte{0})
	if !hasSecond || len(rest) < 8 {
		return e, errDamagedRecord
	}
	e.ID = string(id)
	e.Board = string(second)
	e.At = events.Micros(binary.BigEndian.Uint64(rest))
	e.Text = string(rest[8:])
	return e, nil
}

// TitleText returns the text of an entry for a board that was created with a title, which may be
// empty. If a board has two titles with the same time, the service keeps the one with the larger
// encoding. So the texts sort like the encodings of the titles.
func TitleText(title string) string {
	text := []byte{1}
	if title != "" {
		text = append(binary.AppendUvarint(text, uint64(len(title))), title...)
	}
	return string(text)
}

// titleOf returns the title that a TitleText contains; empty if there is none.
func titleOf(text string) string {
	if len(text) <= 1 {
		return ""
	}
	_, n := binary.Uvarint([]byte(text[1:]))
	return text[1+n:]
}

// PinText returns the text of an entry for a pin: the deterministic encoding of the event. If a pin
// was created twice at the same time, the service keeps the event with the smaller encoding.
func PinText(made *skeinv1.PinCreated) string {
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(made) // ids are UTF-8
	return string(encoded)
}

// pinContent is what the service returns of a pin.
type pinContent struct{ owner, board, item, attributes string }

// pinContentOf decodes a PinText. A pin without an item is its own item.
func pinContentOf(text string) pinContent {
	var made skeinv1.PinCreated
	_ = proto.Unmarshal([]byte(text), &made) // PinText has encoded it
	content := pinContent{made.GetPin().GetOwnerId(), made.GetBoardId(), made.GetItemId(), string(made.GetAttributes())}
	if content.item == "" {
		content.item = made.GetPin().GetPinId()
	}
	return content
}

// String returns the content for people.
func (p pinContent) String() string {
	return fmt.Sprintf("a pin of %s on board %q, item %s, attributes %q", p.owner, p.board, p.item, p.attributes)
}
