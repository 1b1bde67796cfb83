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
	f := fact{kind: r.kind, at: timeless}
	for _, captures := range []captures{r.meaning.needs, r.meaning.mayAlsoBe} {
		for as, field := range captures {
			*f.field(field) = c[as]
		}
	}
	if f.item == f.pin {
		f.item = "" // the item of a pin that names none
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

// field returns where the fact has a field of its event.
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
	default:
		return &f.text
	}
}

// event returns the fact as a backfill. A time after the start of the import is clamped to it.
func (f *fact) event(source string, offset uint64, start events.Micros) *skeinv1.Event {
	ev := events.Event{
		Kind: f.kind, Backfill: true, Source: source, Offset: offset, Time: min(f.at, start),
		User: f.user, Peer: f.peer, Board: f.board, Pin: f.pin, Item: f.item,
	}
	// The message of a kind has only the fields of the kind.
	ev.Items, ev.Title, ev.Attributes = []string{f.item}, f.text, []byte(f.text)
	return ev.Proto()
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
