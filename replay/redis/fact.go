package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// timeless stands for the time of a fact without one in Redis. It sorts after every other time.
const timeless = events.Micros(math.MaxInt64)

// fact is the fact of one element of Redis.
type fact struct {
	kind events.Kind
	// The kind determines which of these are set, as in [events.Event].
	user, peer, board, pin, item string
	// at is the time in Redis, which may be up to a day after the import's start, or [timeless].
	at events.Micros
	// text is a title, or the attributes of a pin.
	text string
}

// factOf makes a fact of the captured texts. It returns an error for one that the service would refuse.
func (r *Rule) factOf(c *captured, score string, start events.Micros) (fact, error) {
	f := fact{kind: r.meaning.kind, at: timeless}
	switch f.kind {
	case events.UserFollowed:
		f.user, f.peer = c[roleFollower], c[roleUser]
	case events.BoardFollowed:
		f.user, f.peer, f.board = c[roleFollower], c[roleOwner], c[roleBoard]
	case events.BoardCreated:
		f.user, f.board, f.text = c[roleOwner], c[roleBoard], c[roleTitle]
	case events.PinCreated:
		f.user, f.pin, f.board, f.item = c[roleOwner], c[rolePin], c[roleBoard], c[roleItem]
		f.text = c[roleAttributes]
		if f.item == f.pin {
			f.item = ""
		}
	case events.UserBlocked:
		f.user, f.peer = c[roleUser], c[roleBlocked]
	case events.UserMuted:
		f.user, f.peer = c[roleUser], c[roleMuted]
	default:
		f.user, f.item = c[roleUser], c[roleItem]
	}
	if r.timed() {
		text := score
		if r.structure != sortedSet || score == "" || c[roleTime] != "" {
			text = c[roleTime]
		}
		var err error
		if f.at, err = r.unit.parse(text, start); err != nil {
			return f, err
		}
	}
	if refused := events.Validate(f.event("check", 1, start)); refused != nil {
		return f, errors.New(refused.Message)
	}
	return f, nil
}

// event returns the fact as a backfill. A time after the start of the import is clamped to it.
func (f *fact) event(source string, offset uint64, start events.Micros) *skeinv1.Event {
	ev := &skeinv1.Event{Source: source, Offset: offset, OccurredAt: timestamppb.New(min(f.at, start).Time())}
	board := &skeinv1.Board{OwnerId: f.peer, BoardId: f.board}
	switch f.kind {
	case events.UserFollowed:
		ev.Kind = &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: f.user, TargetUserId: f.peer}}
	case events.BoardFollowed:
		ev.Kind = &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{UserId: f.user, Board: board}}
	case events.BoardCreated:
		board.OwnerId = f.user
		ev.Kind = &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{Board: board, Title: f.text}}
	case events.PinCreated:
		ev.Kind = &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: f.user, PinId: f.pin}, BoardId: f.board, ItemId: f.item, Attributes: []byte(f.text),
		}}
	case events.UserBlocked:
		ev.Kind = &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: f.user, TargetUserId: f.peer}}
	case events.UserMuted:
		ev.Kind = &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: f.user, TargetUserId: f.peer}}
	case events.Liked:
		ev.Kind = &skeinv1.Event_Liked{Liked: &skeinv1.Liked{UserId: f.user, ItemId: f.item}}
	case events.Played:
		ev.Kind = &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: f.user, ItemId: f.item}}
	case events.Served:
		ev.Kind = &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: f.user, ItemIds: []string{f.item}}}
	}
	return ev
}

// String returns the fact for people.
func (f *fact) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", f.kind)
	for _, p := range []struct{ name, value string }{
		{"user", f.user}, {"peer", f.peer}, {"board", f.board}, {"pin", f.pin}, {"item", f.item}, {"text", f.text},
	} {
		if p.value != "" {
			fmt.Fprintf(&b, " %s=%q", p.name, p.value)
		}
	}
	if f.at != timeless {
		fmt.Fprintf(&b, " at=%s", stamp(f.at))
	}
	return b.String()
}

func stamp(t events.Micros) string {
	if t == timeless {
		return "an unknown time"
	}
	return t.Time().Format("2006-01-02T15:04:05.999999Z")
}

// The encoding of a fact in a file of records. Its bytewise order is by kind and ids, then by time, facts without one last.
//
//	kind  user 00 peer 00 board 00 pin 00 item 00  time (8 bytes, big endian)  text
//
// Ids have no zero bytes. Whatever the unit, a time is in microseconds.
const recordIDs = 5

var errRecord = errors.New("a record of a fact is damaged")

// append appends the encoding of a fact. Its ids must be valid, which excludes zero bytes.
func (f *fact) append(dst []byte) []byte {
	dst = append(dst, byte(f.kind))
	for _, id := range [recordIDs]string{f.user, f.peer, f.board, f.pin, f.item} {
		dst = append(append(dst, id...), 0)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.at))
	return append(dst, f.text...)
}

// idsOf returns the kind and ids of a record: facts with the same ones say the same, maybe at different times.
func idsOf(record []byte) []byte {
	at := 1
	for range recordIDs {
		for at < len(record) && record[at] != 0 {
			at++
		}
		at++
	}
	return record[:min(at, len(record))]
}

// decodeFact decodes the encoding of a fact.
func decodeFact(record []byte) (fact, error) {
	ids := idsOf(record)
	if len(record) < len(ids)+8 || len(ids) < 1+recordIDs {
		return fact{}, errRecord
	}
	f := fact{
		kind: events.Kind(ids[0]), at: events.Micros(binary.BigEndian.Uint64(record[len(ids):])),
		text: string(record[len(ids)+8:]),
	}
	if !f.kind.Backfillable() || f.at < 0 {
		return fact{}, errRecord
	}
	parts := strings.Split(string(ids[1:]), "\x00")
	f.user, f.peer, f.board, f.pin, f.item = parts[0], parts[1], parts[2], parts[3], parts[4]
	return f, nil
}

// A reject is a record in the same files. So an element that a scan returns twice is rejected once, and the rejects of an interrupted
// run are dropped together with its facts.
//
//	255  rule (4 bytes, big endian)  and of key, element and reason: length (4 bytes, big endian), bytes
const rejectTag = 255

// keptBytes is the number of bytes of a long key or element that are kept for the rejects.
const keptBytes = 4 << 10

// reject is an element, or a whole key, that cannot be imported.
type reject struct {
	rule                 int
	key, element, reason string
}

func (r *reject) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, rejectTag), uint32(r.rule))
	for _, s := range []string{r.key, r.element, r.reason} {
		s = s[:min(len(s), keptBytes)]
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
	}
	return dst
}

// count adds the reject to the reasons.
func (r *reject) count(into *importer.Reasons) {
	into.Add(fmt.Sprintf("rule %d: %s", r.rule, r.reason), 0, strings.TrimSuffix(quote(r.key)+" "+quote(r.element), " "))
}

func decodeReject(record []byte) (reject, error) {
	if len(record) < 5 || record[0] != rejectTag {
		return reject{}, errRecord
	}
	r := reject{rule: int(binary.BigEndian.Uint32(record[1:]))}
	record = record[5:]
	for _, into := range []*string{&r.key, &r.element, &r.reason} {
		if len(record) < 4 || len(record)-4 < int(binary.BigEndian.Uint32(record)) {
			return reject{}, errRecord
		}
		n := 4 + int(binary.BigEndian.Uint32(record))
		*into, record = string(record[4:n]), record[n:]
	}
	return r, nil
}
