package inbox

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// DescribeKey tells people in one line what a row of the inbox says, those of the embedded graph included. It returns
// [ErrCorrupt] for a row that the inbox cannot have written.
func DescribeKey(key, value []byte) (string, error) {
	if len(key) < 3 {
		return "", errRow("key", key)
	}
	tag := projections.Tag(key[2])
	if tag >= projections.FirstGraphTag && tag <= projections.LastGraphTag {
		return graph.DescribeKey(key, value)
	}
	form, ok := rowForms[tag]
	if !ok {
		return "", errRow("key", key)
	}
	d := describer{rest: key[3:]}
	fmt.Fprintf(&d.out, "%04x %s", binary.BigEndian.Uint16(key), form.name)
	for i, part := range strings.Fields(form.parts) {
		if err := d.part(part); err != nil {
			return "", errRow(form.name+" key", key)
		}
		if i == 0 && events.Shard(binary.BigEndian.Uint16(key)) != events.ShardOf(d.id) {
			return "", errRow(form.name+" in a foreign shard", key)
		}
	}
	if len(d.rest) != 0 || form.value == nil && len(value) != 0 {
		return "", errRow(form.name, key)
	}
	if form.value != nil {
		if err := form.value(&d, value); err != nil {
			return "", err
		}
	}
	return d.out.String(), nil
}

// rowForm says how a row is read: what its key has after the tag, as the table in keys.go names it, and its value.
type rowForm struct {
	name, parts string
	value       func(d *describer, row []byte) error
}

var rowForms = map[projections.Tag]rowForm{
	tagPin:           {"pin", "B p", (*describer).pin},
	tagOutbox:        {"outbox", "B ^created p", (*describer).board},
	tagBoardOutbox:   {"board-outbox", "B b ^created p", nil},
	tagShadow:        {"shadow", "B b p", nil},
	tagPinCount:      {"pin-count", "B", (*describer).count},
	tagBoardPinCount: {"board-pin-count", "B b", (*describer).count},
	tagBoardDeleted:  {"board-deleted", "B b", (*describer).gone},
	tagReader:        {"reader", "A", (*describer).reader},
	tagEntry:         {"entry", "A ^created B p", nil},
	tagPull:          {"pull", "A B", nil},
	tagBoardPull:     {"board-pull", "A B b", nil},
	tagSource:        {"source", "B", (*describer).source},
	tagBoardSource:   {"board-source", "B b", (*describer).source},
	tagLike:          {"like", "A i", (*describer).like},
	tagHeat:          {"heat", "i", (*describer).heat},
	tagScore:         {"score", "i ^seq", (*describer).score},
}

// describer cuts a key and collects the description.
type describer struct {
	out  strings.Builder
	rest []byte
	// id is the last id cut, with which the pin of a pin row is read.
	id string
}

func (d *describer) part(name string) (err error) {
	switch name {
	case "^created":
		var at events.Micros
		if at, d.rest, err = cutTime(d.rest); err == nil {
			d.time("created", at)
		}
	case "^seq":
		if len(d.rest) != 8 {
			return ErrCorrupt
		}
		d.field("seq", fmt.Sprint(^binary.BigEndian.Uint64(d.rest)))
		d.rest = nil
	default:
		if d.id, d.rest, err = events.CutID(d.rest); err == nil {
			d.name(name, d.id)
		}
	}
	return err
}

func (d *describer) field(name, value string) { fmt.Fprintf(&d.out, " %s=%s", name, value) }

// name writes an id; the empty one is that of a default board.
func (d *describer) name(field, id string) {
	if id == "" {
		id = `""`
	}
	d.field(field, id)
}

func (d *describer) time(name string, t events.Micros) {
	d.field(name, t.Time().Format("2006-01-02T15:04:05.000000Z"))
}

func (d *describer) pin(row []byte) error {
	p, err := decodePin(row, d.id)
	if err != nil {
		return err
	}
	if p.settled {
		d.out.WriteString(" settled")
	}
	if p.history != nil {
		d.out.WriteString(" history:")
		d.creation(p.history)
	}
	for i := range p.live {
		f := &p.live[i]
		switch f.kind {
		case factCreated:
			d.out.WriteString(" created:")
			d.creation(f.made)
		case factMoved:
			d.out.WriteString(" moved:")
			d.time("at", f.at)
			d.name("b", f.board)
		case factBoardGone:
			d.out.WriteString(" board-deleted:")
			d.time("at", f.at)
			d.name("b", f.board)
		}
	}
	return nil
}

func (d *describer) creation(c *creation) {
	d.time("at", c.time)
	d.name("b", c.board)
	d.field("i", c.item)
	if c.repinUser != "" {
		d.field("repin-of", c.repinUser+"/"+c.repinPin)
	}
	if len(c.attributes) > 0 {
		d.field("attributes", fmt.Sprintf("%q", c.attributes))
	}
}

func (d *describer) board(row []byte) error {
	d.name("b", string(row))
	return nil
}

func (d *describer) count(row []byte) error {
	n, k := binary.Uvarint(row)
	if k != len(row) || n == 0 {
		return errRow("count", row)
	}
	d.field("count", fmt.Sprint(n))
	return nil
}

func (d *describer) gone(row []byte) error {
	if len(row) != 8 {
		return errRow("board deletion", row)
	}
	d.time("first", events.Micros(binary.BigEndian.Uint64(row)))
	return nil
}

func (d *describer) reader(row []byte) error {
	r, err := decodeReader(row)
	if err != nil {
		return err
	}
	d.time("active", r.active)
	if !r.ready {
		d.out.WriteString(" no-inbox")
		return nil
	}
	floor, _, err := cutTime(r.floor)
	d.time("floor", floor)
	return err
}

func (d *describer) source(row []byte) error {
	s, err := decodeSource(row)
	if err != nil {
		return err
	}
	if s.pulled {
		d.out.WriteString(" pulled")
	} else {
		d.out.WriteString(" pushed")
	}
	d.time("mark", s.mark)
	return nil
}

func (d *describer) like(row []byte) error {
	if len(row) != 1 || row[0] == 0 || row[0] >= 1<<likeBits {
		return errRow("like", row)
	}
	for _, bit := range []struct {
		flag byte
		name string
	}{{likeBackfilled, "backfilled"}, {likeLive, "live"}, {likeEnded, "ended"}} {
		if row[0]&bit.flag != 0 {
			d.out.WriteString(" " + bit.name)
		}
	}
	return nil
}

func (d *describer) heat(row []byte) error {
	h, err := decodeHeat(row)
	if err != nil {
		return err
	}
	d.field("score", fmt.Sprint(h.value()))
	if h.scored {
		d.out.WriteString(" given")
	}
	return nil
}

func (d *describer) score(row []byte) error {
	began, score, err := decodeScore(row)
	if err != nil {
		return err
	}
	d.field("score", fmt.Sprint(score))
	d.time("since", began)
	return nil
}
