package pinstore

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// An encoded row consists of varints and of texts with their length: the flags, the history if
// there is one, the time and the attributes of the edit if there is one, and then each live fact:
// its kind (1 byte), time, board and, for a creation, the creation.

// The flags of an encoded row.
const (
	flagHistoryClosed = 1 << iota
	flagHistory
	flagEdit
	// flagCount is the number of flags.
	flagCount = 3
)

// The first byte of what an encoded creation has about the pin that it repeats.
const (
	noRepin = iota
	// repinOfPin is followed by the id of that pin, which is empty if it is not kept.
	repinOfPin
	// repinOfOwner is followed by the owner and the id of that pin.
	repinOfOwner
)

// appendTo appends a creation. An item with the same id as the pin, as most have, is left out.
func (c *Creation) appendTo(dst []byte, pin string) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Time))
	dst = fields.AppendText(dst, c.Board)
	item := c.Item
	if item == pin {
		item = ""
	}
	dst = fields.AppendText(dst, item)
	switch {
	case !c.Repin:
		dst = append(dst, noRepin)
	case c.RepinOwner == "":
		dst = fields.AppendText(append(dst, repinOfPin), c.RepinPin)
	default:
		dst = fields.AppendText(append(dst, repinOfOwner), c.RepinOwner)
		dst = fields.AppendText(dst, c.RepinPin)
	}
	return fields.AppendText(dst, string(c.Attributes))
}

// Append appends the encoded row of a pin, given its id.
func (r *Row) Append(dst []byte, pin string) []byte {
	var flags uint64
	if r.HistoryClosed {
		flags |= flagHistoryClosed
	}
	if r.History != nil {
		flags |= flagHistory
	}
	if r.Edit != nil {
		flags |= flagEdit
	}
	dst = binary.AppendUvarint(dst, flags)

	if r.History != nil {
		dst = r.History.appendTo(dst, pin)
	}
	if r.Edit != nil {
		dst = binary.AppendUvarint(dst, uint64(r.Edit.At))
		dst = fields.AppendText(dst, string(r.Edit.Attributes))
	}
	for i := range r.Live {
		f := &r.Live[i]
		dst = append(dst, byte(f.Kind))
		dst = binary.AppendUvarint(dst, uint64(f.At))
		dst = fields.AppendText(dst, f.Board)
		if f.Kind == FactCreated {
			dst = f.Creation.appendTo(dst, pin)
		}
	}
	return dst
}

// readCreation reads what appendTo wrote. It sets r.Bad if it cannot.
func readCreation(r *fields.Reader, pin string) *Creation {
	c := &Creation{Time: events.Micros(r.Uvarint()), Board: r.Text(), Item: r.Text()}
	if c.Item == "" {
		c.Item = pin
	}
	switch r.Uvarint() {
	case noRepin:
	case repinOfPin:
		c.Repin = true
		c.RepinPin = r.Text()
	case repinOfOwner:
		c.Repin = true
		c.RepinOwner = r.Text()
		c.RepinPin = r.Text()
		r.Bad = r.Bad || c.RepinOwner == ""
	default:
		r.Bad = true
	}
	c.Attributes = readAttributes(r)
	return c
}

// readAttributes reads attributes. They are nil if they are empty, as in events without attributes.
func readAttributes(r *fields.Reader) []byte {
	attributes := r.Bytes()
	if len(attributes) == 0 {
		return nil
	}
	return bytes.Clone(attributes) // the row is valid for a short time only
}

// Decode decodes what [Row.Append] wrote, given the id of the pin. The result does not share the
// memory of row.
func Decode(row []byte, pin string) (p Row, err error) {
	r := fields.Reader{Rest: row}
	flags := r.Uvarint()
	if flags >= 1<<flagCount {
		return p, projections.RowError("pin", row)
	}

	p.HistoryClosed = flags&flagHistoryClosed != 0
	if flags&flagHistory != 0 {
		p.History = readCreation(&r, pin)
	}
	if flags&flagEdit != 0 {
		p.Edit = &Edit{At: events.Micros(r.Uvarint())}
		p.Edit.Attributes = readAttributes(&r)
	}

	// The facts have no count: they fill the rest of the row.
	for len(r.Rest) > 0 && !r.Bad {
		f := Fact{Kind: FactKind(r.Rest[0])}
		r.Rest = r.Rest[1:]
		f.At = events.Micros(r.Uvarint())
		f.Board = r.Text()
		switch f.Kind {
		case FactCreated:
			f.Creation = readCreation(&r, pin)
		case FactMoved, FactBoardDeleted:
		default:
			r.Bad = true
		}
		p.Live = append(p.Live, f)
	}

	if r.Bad {
		return Row{}, projections.RowError("pin", row)
	}
	return p, nil
}
