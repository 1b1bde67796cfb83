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

// Timeless is the time of an entry whose source has none. It sorts after every other time, and any time of the service fits it.
const Timeless = events.Micros(math.MaxInt64)

// ListKind is a kind of list or count that the service has.
type ListKind byte

// The kinds of lists, then those of counts. Temporary files have them, so they may change. Within an owner, the counts of follows must
// come after the lists that they count.
const (
	// Following and Followers are explicit follows, ImplicitFollowing and ImplicitFollowers follow by following a board.
	Following ListKind = iota + 1
	Followers
	ImplicitFollowing
	ImplicitFollowers
	FollowedBoards
	BoardFollowers
	Boards
	Blocked
	Muted
	// followCounts and boardFollowCounts count the lists before them. Only answers have them.
	followCounts
	boardFollowCounts
	Pins
	BoardPins
	Served
	// PlaysOf counts the plays of an item, PlaysBy those by a user, and LikesOf the users who like an item.
	PlaysOf
	PlaysBy
	LikesOf
)

var listNames = [...]string{
	Following: "following", Followers: "followers", ImplicitFollowing: "following by boards", ImplicitFollowers: "followers by boards",
	FollowedBoards: "followed boards", BoardFollowers: "followers of the board", Boards: "boards", Blocked: "blocked", Muted: "muted",
	followCounts: "counts", boardFollowCounts: "counts of the board", Pins: "pins", BoardPins: "pins of the board", Served: "served",
	PlaysOf: "plays of", PlaysBy: "plays by", LikesOf: "likes of",
}

// String returns the name of the kind for people.
func (k ListKind) String() string { return listNames[k] }

// isCount reports whether the service has only the number of entries.
func (k ListKind) isCount() bool { return k >= PlaysOf }

// isFollowList reports whether the entries are follows, which do not hold while one of the two users blocks the other.
func (k ListKind) isFollowList() bool { return k <= BoardFollowers }

// isOfBoard reports whether the list is one of a board, not of a user or item.
func (k ListKind) isOfBoard() bool {
	return k == BoardFollowers || k == BoardPins || k == boardFollowCounts
}

// List names a list or count: that of a user, an item, or a board of a user.
type List struct {
	Kind         ListKind
	Owner, Board string
}

// String returns the list for people.
func (l List) String() string {
	switch {
	case l.Kind.isOfBoard():
		return fmt.Sprintf("%v %q of %s", l.Kind, l.Board, l.Owner)
	case l.Kind.isCount():
		return fmt.Sprintf("%v %s", l.Kind, l.Owner)
	}
	return fmt.Sprintf("%v of %s", l.Kind, l.Owner)
}

// Entry is an entry of a list: a user, a board of a user, a pin or an item.
type Entry struct {
	List List
	// ID is empty for the list itself, which is then queried even if no entry of it is expected.
	ID, Board string
	// At is the time of the fact that makes the entry, or Timeless.
	At events.Micros
	// Text is a [TitleText] or a [PinText]; the board that makes an implicit follow; or, for plays, what distinguishes one of several at
	// the same time.
	Text string
}

// name returns the entry for people.
func (e *Entry) name() string {
	if e.List.Kind == FollowedBoards || e.List.Kind == Boards {
		return fmt.Sprintf("board %q of %s", e.Board, e.ID)
	}
	return e.ID
}

var errRecord = errors.New("comparison: a record of an entry is damaged")

// appendTo appends the encoding of a list, which orders lists by owner and board. So the counts of a user follow the user's lists.
//
//	owner 00 board 00 kind
func (l List) appendTo(dst []byte) []byte {
	dst = append(append(dst, l.Owner...), 0)
	dst = append(append(dst, l.Board...), 0)
	return append(dst, byte(l.Kind))
}

// encode returns the encoding of an entry. In bytewise order, the records about one entry of a list are neighbors, by time. The list itself
// comes first, with a text that has no zero bytes.
//
//	list [id 00 board 00  time (8 bytes, big endian)]  text
func (e *Entry) encode() []byte {
	dst := e.sortKey()
	if e.ID != "" {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.At))
	}
	return append(dst, e.Text...)
}

// sortKey returns what the encodings of all records about the same entry begin with.
func (e *Entry) sortKey() []byte {
	dst := e.List.appendTo(nil)
	if e.ID == "" {
		return dst
	}
	dst = append(append(dst, e.ID...), 0)
	return append(append(dst, e.Board...), 0)
}

// decodeEntry decodes the encoding of an entry.
func decodeEntry(record []byte) (Entry, error) {
	var e Entry
	owner, rest, hasOwner := bytes.Cut(record, []byte{0})
	board, rest, hasBoard := bytes.Cut(rest, []byte{0})
	if !hasOwner || !hasBoard || len(rest) == 0 {
		return e, errRecord
	}
	e.List = List{ListKind(rest[0]), string(owner), string(board)}
	rest = rest[1:]

	id, rest, hasID := bytes.Cut(rest, []byte{0})
	if !hasID {
		e.Text = string(id)
		return e, nil
	}
	second, rest, hasSecond := bytes.Cut(rest, []byte{0})
	if !hasSecond || len(rest) < 8 {
		return e, errRecord
	}
	e.ID, e.Board = string(id), string(second)
	e.At, e.Text = events.Micros(binary.BigEndian.Uint64(rest)), string(rest[8:])
	return e, nil
}

// TitleText returns the text of an entry for a board that was created with a title, which may be empty. Of two titles at the same time,
// that with the larger encoding counts, so the text orders titles as their encodings.
func TitleText(title string) string {
	text := []byte{1}
	if title != "" {
		text = append(binary.AppendUvarint(text, uint64(len(title))), title...)
	}
	return string(text)
}

// titleOf returns the title of a text.
func titleOf(text string) string {
	if len(text) <= 1 {
		return ""
	}
	_, n := binary.Uvarint([]byte(text[1:]))
	return text[1+n:]
}

// PinText returns the text of an entry for a pin: the deterministic encoding of the event. Of two events at the same time, that with the
// smaller encoding counts.
func PinText(made *skeinv1.PinCreated) string {
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(made) // ids are UTF-8
	return string(encoded)
}

// pinContent is what the service tells about a pin.
type pinContent struct{ owner, board, item, attributes string }

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
