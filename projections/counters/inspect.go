package counters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// RowKinds returns the kinds of rows that [DescribeRow] tells.
func RowKinds() []string { return projections.RowKinds(relationForms, itemForms, listForms) }

// DescribeKey is [DescribeRow] for people: in one line.
func DescribeKey(key, value []byte) (string, error) { return projections.Text(DescribeRow(key, value)) }

// DescribeRow tells what a row of counters says. It returns [ErrCorrupt] for a row that counters cannot have written.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	tag, forms := tagOf(key), relationForms
	if _, ok := listForms[tag]; ok {
		forms = listForms
	} else if tag >= tagPin {
		forms = itemForms
	}
	d, err := projections.DescribeForm(forms, key, value)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, err
}

// tagOf returns the tag of a key; of what is too short for one, that of no row of a projection.
func tagOf(key []byte) projections.Tag {
	if len(key) < 3 {
		return projections.FirstRuntimeTag
	}
	return projections.Tag(key[2])
}

// itemForms describe the rows of pins and items.
var itemForms = map[projections.Tag]projections.RowForm{
	tagPin:        {Name: "pin", Parts: "B p", Value: pinfacts.Describe},
	tagPlace:      {Name: "pin-place", Parts: "B b p"},
	tagDoings:     {Name: "user-doings", Parts: "A", Value: describeDoings},
	tagBoardPins:  {Name: "board-pins", Parts: "B b", Value: describeNumber},
	tagBoardGone:  {Name: "board-deleted", Parts: "B b", Value: describeGone},
	tagLike:       {Name: "like", Parts: "A i", Value: describeLike},
	tagItem:       {Name: "item", Parts: "i", Value: describeItem},
	tagVersion:    {Name: "score", Parts: "i ^seq", Value: describeVersion},
	tagOwnerShows: {Name: "shown-by", Parts: "i B", Value: describeNumber},
	tagBoardShows: {Name: "shown-on", Parts: "i B b", Value: describeNumber},
}

func describeDoings(d *projections.Description, row []byte) error {
	var n doings
	if len(row) == 0 {
		return errRow("counts", row)
	}
	err := readCounts(row, n[:])
	d.Int("pins", n[ownPins])
	d.Int("plays", n[ownPlays])
	return err
}

func describeNumber(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Int("pins", n)
	return err
}

func describeGone(d *projections.Description, row []byte) error {
	if len(row) != 8 {
		return errRow("board deletion", row)
	}
	d.Time("first", events.Micros(binary.BigEndian.Uint64(row)))
	return nil
}

func describeLike(d *projections.Description, row []byte) error {
	f, err := decodeLike(row)
	d.Flag("backfilled", f&likeBackfilled != 0)
	d.Flag("live", f&likeLive != 0)
	d.Flag("ended", f&likeEnded != 0)
	return err
}

func describeItem(d *projections.Description, row []byte) error {
	it, err := decodeItem(row)
	if err != nil {
		return err
	}
	d.Int("plays", it.plays)
	d.Int("likes", it.likes)
	d.Int("repins", it.repins)
	d.Int("boards", it.boards)
	if err := it.names.each(func(owner, board string) { d.Pair("on", owner, board) }); err != nil {
		return err
	}
	d.Flag("widespread", it.widespread)
	if it.hot {
		d.Int("score", it.heat.Score())
		d.Flag("given", it.heat.Scored)
	}
	return nil
}

func describeVersion(d *projections.Description, row []byte) error {
	began, score, err := decodeVersion(row)
	if err != nil {
		return err
	}
	d.Int("score", score)
	d.Time("since", began)
	return nil
}

// listForms describe the rows whose keys have an id behind something that is none, or have none.
var listForms = map[projections.Tag]projections.RowForm{
	tagTop:        {Name: "list", Store: true, Rest: describeEntry},
	tagOwnerTop:   {Name: "user-list", Parts: "B", Rest: describeEntry},
	tagBoardTop:   {Name: "board-list", Parts: "B b", Rest: describeEntry},
	tagEnded:      {Name: "ended", Store: true, Rest: describeEnded},
	tagFirstEnded: {Name: "first-ended", Store: true, Rest: describeFirstEnded},
}

// describeEntry reads an entry of a list.
func describeEntry(d *projections.Description, rest, value []byte) error {
	if len(rest) == 0 {
		return errRow("entry of a list", rest)
	}
	switch rest[0] {
	case entryWidespread:
		item, err := cutLast(rest[1:])
		if err == nil && len(value) != 0 {
			err = errRow("widespread item", value)
		}
		d.Name("i", item)
		d.Flag("widespread", true)
		return err
	case entryVersion:
		item, score, from, err := cutVersionEntry(rest[1:])
		if err != nil {
			return err
		}
		to, err := decodeTo(value)
		if err == nil && to <= from {
			err = errRow("version that ends before it begins", rest)
		}
		d.Int("score", score)
		d.Name("i", item)
		d.Uint("from", from)
		d.InValue()
		if to != math.MaxUint64 {
			d.Uint("to", to)
		}
		return err
	}
	return errRow("entry of a list", rest)
}

func describeEnded(d *projections.Description, rest, value []byte) error {
	at, item, from, err := cutEnded(rest)
	if err == nil && len(value) != 0 {
		err = errRow("ended version", value)
	}
	d.Time("at", at)
	d.Name("i", item)
	d.Uint("seq", from)
	return err
}

func describeFirstEnded(d *projections.Description, rest, value []byte) error {
	if len(rest) != 0 {
		return errRow("first of the ended versions", rest)
	}
	at, err := decodeFirstEnded(value)
	d.InValue()
	d.Time("at", at)
	return err
}
