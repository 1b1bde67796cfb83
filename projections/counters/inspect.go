package counters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// DescribeKey tells people in one line what a row of counters says. It returns [ErrCorrupt] for a row that counters cannot have
// written.
func DescribeKey(key, value []byte) (string, error) {
	var text string
	var err error
	tag := tagOf(key)
	form, ok := listForms[tag]
	switch {
	case ok:
		text, err = form.describe(key, value)
	case tag >= tagPin:
		text, err = projections.Describe(itemForms, key, value)
	default:
		text, err = projections.Describe(relationForms, key, value)
	}
	if err != nil && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return text, err
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
	d.Field("pins", fmt.Sprint(n[ownPins]))
	d.Field("plays", fmt.Sprint(n[ownPlays]))
	return err
}

func describeNumber(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Field("pins", fmt.Sprint(n))
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
	d.Field("plays", fmt.Sprint(it.plays))
	d.Field("likes", fmt.Sprint(it.likes))
	d.Field("repins", fmt.Sprint(it.repins))
	d.Field("boards", fmt.Sprint(it.boards))
	d.Flag("widespread", it.widespread)
	if it.hot {
		d.Field("score", fmt.Sprint(it.heat.Score()))
		d.Flag("given", it.heat.Scored)
	}
	return nil
}

func describeVersion(d *projections.Description, row []byte) error {
	began, score, err := decodeVersion(row)
	if err != nil {
		return err
	}
	d.Field("score", fmt.Sprint(score))
	d.Time("since", began)
	return nil
}

// listForm says how rows are read whose keys have an id behind something that is none, or have none.
type listForm struct {
	name string
	// ids are what stands between the tag and the rest; none: the row is the store's.
	ids  []string
	rest func(out *strings.Builder, rest, value []byte) error
}

var listForms = map[projections.Tag]listForm{
	tagTop:        {"list", nil, describeEntry},
	tagOwnerTop:   {"user-list", []string{"B"}, describeEntry},
	tagBoardTop:   {"board-list", []string{"B", "b"}, describeEntry},
	tagEnded:      {"ended", nil, describeEnded},
	tagFirstEnded: {"first-ended", nil, describeFirstEnded},
}

func (f *listForm) describe(key, value []byte) (string, error) {
	var out strings.Builder
	shard := projections.StoreShard
	rest := key[3:]
	var text strings.Builder
	for i, name := range f.ids {
		id, more, err := events.CutID(rest)
		if err != nil {
			return "", errRow(f.name, key)
		}
		if i == 0 {
			shard = events.ShardOf(id)
		}
		if rest = more; id == "" {
			id = `""`
		}
		fmt.Fprintf(&text, " %s=%s", name, id)
	}
	if binary.BigEndian.Uint16(key) != uint16(shard) {
		return "", errRow(f.name+" in a foreign shard", key)
	}
	fmt.Fprintf(&out, "%04x %s%s", uint16(shard), f.name, text.String())
	if err := f.rest(&out, rest, value); err != nil {
		return "", err
	}
	return out.String(), nil
}

// describeEntry reads an entry of a list.
func describeEntry(out *strings.Builder, rest, value []byte) error {
	if len(rest) == 0 {
		return errRow("entry of a list", rest)
	}
	switch rest[0] {
	case entryWidespread:
		item, err := cutLast(rest[1:])
		if err == nil && len(value) != 0 {
			err = errRow("widespread item", value)
		}
		fmt.Fprintf(out, " i=%s widespread", item)
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
		fmt.Fprintf(out, " score=%d i=%s from=%d", score, item, from)
		if to != math.MaxUint64 {
			fmt.Fprintf(out, " to=%d", to)
		}
		return err
	}
	return errRow("entry of a list", rest)
}

func writeTime(out *strings.Builder, at events.Micros) {
	fmt.Fprintf(out, " at=%s", at.Time().Format("2006-01-02T15:04:05.000000Z"))
}

func describeEnded(out *strings.Builder, rest, value []byte) error {
	at, item, from, err := cutEnded(rest)
	if err == nil && len(value) != 0 {
		err = errRow("ended version", value)
	}
	writeTime(out, at)
	fmt.Fprintf(out, " i=%s seq=%d", item, from)
	return err
}

func describeFirstEnded(out *strings.Builder, rest, value []byte) error {
	if len(rest) != 0 {
		return errRow("first of the ended versions", rest)
	}
	at, err := decodeFirstEnded(value)
	writeTime(out, at)
	return err
}
