package pinfacts

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// A row in bytes, in varints and length-prefixed bytes: flags (1 history closed, 2 history), the history, then each live fact:
// kind, time, board, and of a creation the content.

const (
	flagHistoryClosed = 1 << iota
	flagHistory
	flags = 2
)

// append appends a creation. The item is left out where it has the id of the pin. A re-pin has 1, and the id of the pin that it repeats
// as far as it is kept; any other pin 0.
func (c *Creation) append(dst []byte, pin string) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Time))
	dst = fields.AppendText(dst, c.Board)
	item := c.Item
	if item == pin {
		item = ""
	}
	dst = fields.AppendText(dst, item)
	if c.Repin {
		dst = fields.AppendText(append(dst, 1), c.RepinPin)
	} else {
		dst = append(dst, 0)
	}
	return fields.AppendText(dst, string(c.Attributes))
}

// Append appends the row of a pin.
func (r *Row) Append(dst []byte, pin string) []byte {
	var set uint64
	if r.HistoryClosed {
		set |= flagHistoryClosed
	}
	if r.History != nil {
		set |= flagHistory
	}
	dst = binary.AppendUvarint(dst, set)
	if r.History != nil {
		dst = r.History.append(dst, pin)
	}
	for i := range r.Live {
		f := &r.Live[i]
		dst = append(dst, byte(f.Kind))
		dst = binary.AppendUvarint(dst, uint64(f.At))
		dst = fields.AppendText(dst, f.Board)
		if f.Kind == Created {
			dst = f.Made.append(dst, pin)
		}
	}
	return dst
}

func readCreation(r *fields.Reader, pin string) *Creation {
	c := &Creation{Time: events.Micros(r.Uvarint()), Board: r.Text(), Item: r.Text()}
	if c.Item == "" {
		c.Item = pin
	}
	switch r.Uvarint() {
	case 0:
	case 1:
		c.Repin, c.RepinPin = true, r.Text()
	default:
		r.Bad = true
	}
	if b := r.Bytes(); len(b) > 0 {
		c.Attributes = bytes.Clone(b)
	}
	return c
}

// Decode reads what [Row.Append] wrote. Nothing of the bytes is kept.
func Decode(row []byte, pin string) (p Row, err error) {
	r := fields.Reader{Rest: row}
	set := r.Uvarint()
	if set >= 1<<flags {
		return p, projections.RowError("pin", row)
	}
	p.HistoryClosed = set&flagHistoryClosed != 0
	if set&flagHistory != 0 {
		p.History = readCreation(&r, pin)
	}
	for len(r.Rest) > 0 && !r.Bad {
		f := Fact{Kind: Kind(r.Rest[0])}
		r.Rest = r.Rest[1:]
		f.At, f.Board = events.Micros(r.Uvarint()), r.Text()
		switch f.Kind {
		case Created:
			f.Made = readCreation(&r, pin)
		case Moved, BoardGone:
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
