package counters

import (
	"encoding/hex"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// RowKinds returns the kinds of rows that [DescribeRow] tells.
func RowKinds() []string { return projections.RowKinds(itemForms, listForms) }

// DescribeRow says what a row of counters says. It returns [projections.ErrCorrupt] for a row that counters cannot have written.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	forms := itemForms
	if _, ok := listForms[tagOf(key)]; ok {
		forms = listForms
	}
	return projections.DescribeForm(forms, key, value)
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
	tagPin:           {Name: "pin", Parts: "B p", Value: pinfacts.Describe},
	tagPossibleBoard: {Name: "possible-board", Parts: "B b p"},
	tagDoings:        {Name: "user-doings", Parts: "A", Value: describeDoings},
	tagBoardPins:     {Name: "board-pins", Parts: "B b", Value: describeNumber},
	tagShown:         {Name: "shown", Parts: "B i p", Value: describeShown},
	tagLike:          {Name: "like", Parts: "A i", Remote: true, Value: describeLike},
	tagItem:          {Name: "item", Parts: "i", Value: describeItem},
	tagVersion:       {Name: "score", Parts: "i ^seq", Value: describeVersion},
	tagListed:        {Name: "listed", Parts: "i B"},
	tagLiked:         {Name: "liked", Parts: "A ^since i"},
	tagNamed:         {Name: "named", Parts: "B part i p", Value: describeNamed},
}

func describeDoings(d *projections.Description, row []byte) error {
	var n doings
	if len(row) == 0 {
		return projections.RowError("counts", row)
	}
	err := fields.ReadCounts(row, n[:])
	d.Int("pins", n[ownPins])
	d.Int("plays", n[ownPlays])
	return err
}

func describeNumber(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Int("pins", n)
	return err
}

func describeShown(d *projections.Description, row []byte) error {
	d.Name("b", string(row))
	return nil
}

func describeLike(d *projections.Description, row []byte) error {
	l, err := decodeLike(row)
	if l.backfilled != 0 {
		d.Time("backfilled", l.backfilled)
	}
	if l.live != 0 {
		d.Time("live", l.live)
	}
	d.Flag("ended", l.ended)
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
	d.Int("lists", it.lists)
	if it.scored {
		d.Int("score", it.score)
		d.Flag("given", it.heat.Scored)
	}
	return nil
}

func describeNamed(d *projections.Description, row []byte) error {
	repinned, err := decodeNamed(row)
	d.Flag("repinned", repinned)
	return err
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
	tagEnded:      {Name: "ended", Rest: describeEnded},
	tagFirstEnded: {Name: "first-ended", Rest: describeFirstEnded},
	tagTombstone:  {Name: "tombstone", Store: true, Rest: describeTombstone},
	tagBoardLife:  {Name: "board-deleted", Store: true, Rest: describeBoardLife},
}

// describeEntry reads an entry of a list.
func describeEntry(d *projections.Description, rest, value []byte) error {
	if len(rest) == 0 {
		return projections.RowError("entry of a list", rest)
	}
	switch rest[0] {
	case entryName:
		item, err := cutLast(rest[1:])
		if err == nil && len(value) != 0 {
			err = projections.RowError("item in a list", value)
		}
		d.Name("i", item)
		d.Flag("by-name", true)
		return err
	case entryVersion:
		item, score, from, err := cutVersionEntry(rest[1:])
		if err != nil {
			return err
		}
		to, err := decodeTo(value)
		if err == nil && to <= from {
			err = projections.RowError("version that ends before it begins", rest)
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
	return projections.RowError("entry of a list", rest)
}

func describeEnded(d *projections.Description, rest, value []byte) error {
	at, item, from, err := cutEnded(rest)
	if err == nil && (len(value) != 0 || d.Shard != firstShard(partitionOf(item))) {
		err = projections.RowError("ended version", value)
	}
	d.Time("at", at)
	d.Name("i", item)
	d.Uint("seq", from)
	return err
}

func describeFirstEnded(d *projections.Description, rest, value []byte) error {
	if len(rest) != 0 || d.Shard != firstShard(d.Shard.Partition()) {
		return projections.RowError("first of the ended versions", rest)
	}
	at, err := decodeFirstEnded(value)
	d.InValue()
	d.Time("at", at)
	return err
}

// firstShard returns the first shard of a partition.
func firstShard(partition uint8) events.Shard { return events.Shard(partition) << 5 }

func describeTombstone(d *projections.Description, rest, value []byte) error {
	if len(rest) != 16 || len(value) != 0 {
		return projections.RowError("tombstone", rest)
	}
	d.Field("hash", hex.EncodeToString(rest))
	return nil
}

func describeBoardLife(d *projections.Description, rest, value []byte) error {
	if len(rest) != 32 {
		return projections.RowError("life of a board", rest)
	}
	d.Field("hash-of-owner", hex.EncodeToString(rest[:16]))
	d.Field("hash", hex.EncodeToString(rest[16:]))
	d.InValue()
	l, err := decodeBoardLife(value)
	d.Time("first", l.first)
	d.Flag("deleted", l.deleted)
	return err
}
