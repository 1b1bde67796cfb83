package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// timeless is the time of a fact that has no time in Redis. It sorts after every other time.
const timeless = events.Micros(math.MaxInt64)

// fact is what one element of Redis says.
type fact struct {
	kind events.Kind
	// The kind determines which of these are set, and what they mean, as in [events.Event].
	user, peer, board, pin, item, reaction string
	// at is the time in Redis, which may be up to a day after the start of the import, or
	// [timeless].
	at events.Micros
	// text is a title, or the attributes of a pin.
	text string
}

// factOf returns the fact that the captured texts stand for. It returns an error if the service
// would reject it.
func (r *Rule) factOf(c *captured, score string, start events.Micros) (fact, error) {
	f := fact{kind: r.kind, at: timeless}
	for _, captures := range []captures{r.meaning.required, r.meaning.optional} {
		for as, field := range captures {
			*f.field(field) = c[as]
		}
	}
	f.reaction = events.ReactionOf(f.reaction)
	if f.item == f.pin {
		f.item = "" // a pin that names no item is its own item, so the two facts must be equal
	}
	if r.hasTimes() {
		// The time is the score of a sorted set, unless the rule captures it elsewhere.
		text := score
		if r.structure != sortedSet || score == "" || c[roleTime] != "" {
			text = c[roleTime]
		}
		var err error
		f.at, err = r.unit.parse(text, start)
		if err != nil {
			return f, err
		}
	}

	if refused := events.Validate(f.event("check", 1, start)); refused != nil {
		return f, errors.New(refused.Message)
	}
	return f, nil
}

// field returns the place in the fact for a field of an event.
func (f *fact) field(field events.Field) *string {
	switch field {
	case events.FieldUser:
		return &f.user
	case events.FieldPeer:
		return &f.peer
	case events.FieldBoard:
		return &f.board
	case events.FieldPin:
		return &f.pin
	case events.FieldItem, events.FieldItems:
		return &f.item
	case events.FieldReaction:
		return &f.reaction
	default:
		return &f.text
	}
}

// event returns the fact as a backfill. A time after the start of the import is replaced by the
// start.
func (f *fact) event(source string, offset uint64, start events.Micros) *skeinv1.Event {
	ev := events.Event{
		Kind: f.kind, Backfill: true, Source: source, Offset: offset, Time: min(f.at, start),
		User: f.user, Peer: f.peer, Board: f.board, Pin: f.pin, Item: f.item, Reaction: f.reaction,
	}
	// Only the fields that the kind has become part of the message.
	ev.Items = []string{f.item}
	ev.Title = f.text
	ev.Attributes = []byte(f.text)
	return ev.Proto()
}

// String describes the fact to people.
func (f *fact) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", f.kind)
	for _, p := range []struct{ name, value string }{
		{"user", f.user},
		{"peer", f.peer},
		{"board", f.board},
		{"pin", f.pin},
		{"item", f.item},
		{"kind", f.reaction},
		{"text", f.text},
	} {
		if p.value != "" {
			fmt.Fprintf(&b, " %s=%q", p.name, p.value)
		}
	}
	if f.at != timeless {
		fmt.Fprintf(&b, " at=%s", formatTime(f.at))
	}
	return b.String()
}

// formatTime returns a time for people.
func formatTime(t events.Micros) string {
	if t == timeless {
		return "an unknown time"
	}
	return t.Time().Format("2006-01-02T15:04:05.999999Z")
}

// The encoding of a fact in a file of records. Encodings sort by kind and ids, and then by time,
// with facts that have no time last.
//
//	kind  user 00 peer 00 board 00 pin 00 item 00  time (8 bytes, big endian)  text
//
// Reactions have no board, so their kind stands there instead. Ids and kinds have no zero bytes.
// Times are in microseconds, whatever the unit in Redis.
//
// idsPerRecord is the number of ids in an encoding.
const idsPerRecord = 5

// errDamagedRecord means that a record cannot be decoded.
var errDamagedRecord = errors.New("a record of a fact is damaged")

// appendTo appends the encoding of the fact to dst. Its ids must be valid, because valid ids have
// no zero bytes.
func (f *fact) appendTo(dst []byte) []byte {
	dst = append(dst, byte(f.kind))
	for _, id := range [idsPerRecord]string{f.user, f.peer, f.board + f.reaction, f.pin, f.item} {
		dst = append(append(dst, id...), 0)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.at))
	return append(dst, f.text...)
}

// idsOf returns the kind and the ids of a record, which are its beginning. Facts that have these in
// common are equal except for time and text.
func idsOf(record []byte) []byte {
	at := 1
	for range idsPerRecord {
		for at < len(record) && record[at] != 0 {
			at++
		}
		at++
	}
	return record[:min(at, len(record))]
}

// decodeFact is the inverse of fact.appendTo.
func decodeFact(record []byte) (fact, error) {
	ids := idsOf(record)
	if len(record) < len(ids)+8 || len(ids) < 1+idsPerRecord {
		return fact{}, errDamagedRecord
	}
	f := fact{
		kind: events.Kind(ids[0]), at: events.Micros(binary.BigEndian.Uint64(record[len(ids):])),
		text: string(record[len(ids)+8:]),
	}
	if !f.kind.Backfillable() || f.at < 0 {
		return fact{}, errDamagedRecord
	}
	parts := strings.Split(string(ids[1:]), "\x00")
	f.user = parts[0]
	f.peer = parts[1]
	f.board = parts[2]
	f.pin = parts[3]
	f.item = parts[4]
	// The field of the board holds the kind of a reaction.
	if f.kind.Fields().Has(events.FieldReaction) {
		f.reaction = f.board
		f.board = ""
	}
	return f, nil
}

// A reject is a record in the same files as the facts. So an element that a scan returns twice is
// rejected once, and the rejects of a run that begins anew are dropped together with its facts. The
// encoding of a reject:
//
//	255  rule (4 bytes, big endian)  and for each of key, element and reason: length (4 bytes, big endian), bytes
const rejectTag = 255

// maxKeptBytes is how many bytes of a long key or element are kept for the rejects.
const maxKeptBytes = 4 << 10

// reject is an element or a whole key that cannot be imported. rule is the number of the rule that
// has read it.
type reject struct {
	rule                 int
	key, element, reason string
}

// appendTo appends the encoding of the reject to dst.
func (r *reject) appendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, rejectTag), uint32(r.rule))
	for _, s := range []string{r.key, r.element, r.reason} {
		s = s[:min(len(s), maxKeptBytes)]
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
	}
	return dst
}

// countIn adds the reject to the reasons.
func (r *reject) countIn(into *importer.ReasonCounts) {
	into.Add(fmt.Sprintf("rule %d: %s", r.rule, r.reason), 0, strings.TrimSuffix(quote(r.key)+" "+quote(r.element), " "))
}

// decodeReject is the inverse of reject.appendTo. Long texts are truncated.
func decodeReject(record []byte) (reject, error) {
	if len(record) < 5 || record[0] != rejectTag {
		return reject{}, errDamagedRecord
	}
	r := reject{rule: int(binary.BigEndian.Uint32(record[1:]))}
	record = record[5:]
	for _, into := range []*string{&r.key, &r.element, &r.reason} {
		if len(record) < 4 || len(record)-4 < int(binary.BigEndian.Uint32(record)) {
			return reject{}, errDamagedRecord
		}
		n := 4 + int(binary.BigEndian.Uint32(record))
		*into = string(record[4:n])
		record = record[n:]
	}
	return r, nil
}
