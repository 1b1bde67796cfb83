package counters

import (
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
	"github.com/skein-feed/skein/projections/pinstore"
)

// RowKinds returns the names of the kinds of rows that [DescribeRow] describes.
func RowKinds() []string { return projections.RowKinds(itemForms, listForms) }

// DescribeRow describes a row of counters for people. It returns [projections.ErrCorrupt] for a row
// that counters cannot have written.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	forms := itemForms
	if _, ok := listForms[tagOfKey(key)]; ok {
		forms = listForms
	}
	return projections.DescribeForm(forms, key, value)
}

// tagOfKey returns the tag of a key. For a key that is too short, it returns a tag that no
// projection uses.
func tagOfKey(key []byte) projections.Tag {
	if len(key) < 3 {
		return projections.FirstRuntimeTag
	}
	return projections.Tag(key[2])
}

// itemForms describe the rows whose keys consist of ids, times and positions.
var itemForms = map[projections.Tag]projections.RowForm{
	tagPin:           {Name: "pin", Parts: "B p", Value: pinstore.Describe},
	tagPossibleBoard: {Name: "possible-board", Parts: "B b p"},
	tagUserTallies:   {Name: "user-tallies", Parts: "A", Value: describeUserTallies},
	tagBoardPins:     {Name: "board-pins", Parts: "B b", Value: describePinCount},
	tagShownItem:     {Name: "shown", Parts: "B i p", Value: describeShownItem},
	tagReaction:      {Name: "reaction", Parts: "A i kind", Special: reactionKeyParts, Remote: true, Value: describeReaction},
	tagItem:          {Name: "item", Parts: "i", Value: describeItem},
	tagItemLists:     {Name: "listed", Parts: "i B"},
	tagReactedItem:   {Name: "reacted", Parts: "A kind ^since i", Special: reactionKeyParts},
	tagReactor:       {Name: "reactor", Parts: "i kind ^since A", Special: reactionKeyParts},
	tagReactionCount: {Name: "reactions", Parts: "i kind", Special: reactionKeyParts, Value: describeReactionCount},
	tagNamedItem:     {Name: "named", Parts: "B part i p", Value: describeNamedItem},
}

func describeUserTallies(d *projections.Description, row []byte) error {
	var tallies userTallies
	if len(row) == 0 {
		return projections.RowError("counts", row)
	}
	err := fields.ReadCounts(row, tallies[:])
	d.Int("pins", tallies[tallyPins])
	d.Int("plays", tallies[tallyPlays])
	return err
}

func describePinCount(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Int("pins", n)
	return err
}

func describeShownItem(d *projections.Description, row []byte) error {
	d.Name("b", string(row))
	return nil
}

// reactionKeyParts reads the kind of a reaction.
var reactionKeyParts = map[string]func(d *projections.Description) error{"kind": describeReactionKind}

// describeReactionKind reads the kind of a reaction from a key. A kind has no length: it ends with a
// zero byte.
func describeReactionKind(d *projections.Description) error {
	var kind []byte
	for {
		b, err := d.Cut(1)
		if err != nil {
			return err
		}
		kind = append(kind, b[0])
		if b[0] == 0 {
			break
		}
	}
	name, _, err := cutReactionKind(kind)
	d.Field("kind", events.ReactionName(name))
	return err
}

func describeReaction(d *projections.Description, row []byte) error {
	r, err := decodeReaction(row)
	r.Describe(d, "ended")
	return err
}

func describeReactionCount(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Int("users", n)
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
	d.Int("other-kinds", it.otherKinds)
	d.Int("lists", it.listsByScore)
	if it.hasScore {
		d.Int("score", it.score)
		d.Flag("given", it.heat.HasGivenScore)
		d.Uint("seq", uint64(it.scoreFrom))
		d.Uint("last-ended", it.lastEnded)
	}
	return nil
}

func describeNamedItem(d *projections.Description, row []byte) error {
	isRepin, err := decodeNamedItem(row)
	d.Flag("repinned", isRepin)
	return err
}

// listForms describe the rows whose keys have other parts, which functions of their own read.
var listForms = map[projections.Tag]projections.RowForm{
	tagGlobalList:    {Name: "list", Store: true, Rest: describeListEntry},
	tagOwnerList:     {Name: "user-list", Parts: "B", Rest: describeListEntry},
	tagEndedVersion:  {Name: "ended", Rest: describeEndedVersion},
	tagVersionQueue:  {Name: "ended-queue", Rest: describeVersionQueue},
	tagTombstone:     {Name: "tombstone", Store: true, Rest: describeTombstone},
	tagBoardDeletion: {Name: "board-deleted", Store: true, Rest: describeBoardDeletion},
}

// describeListEntry describes an entry of a list by heat (see [entryByName]).
func describeListEntry(d *projections.Description, rest, value []byte) error {
	if len(rest) == 0 {
		return projections.RowError("entry of a list", rest)
	}
	switch rest[0] {
	case entryByName:
		item, err := cutLastID(rest[1:])
		if err == nil && len(value) != 0 {
			err = projections.RowError("item in a list", value)
		}
		d.Name("i", item)
		d.Flag("by-name", true)
		return err
	case entryByScore:
		item, score, from, err := cutScoreEntry(rest[1:])
		if err != nil {
			return err
		}
		to, err := decodeVersionEnd(value)
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

func describeEndedVersion(d *projections.Description, rest, value []byte) error {
	if len(rest) != 8 {
		return projections.RowError("ended version", rest)
	}
	d.Uint("number", binary.BigEndian.Uint64(rest))
	v, err := decodeEndedVersion(value)
	if err == nil && d.Shard != projections.FirstShard(itemPartition(v.item)) {
		err = projections.RowError("ended version", value)
	}
	d.InValue()
	d.Name("i", v.item)
	d.Int("score", v.score)
	d.Uint("seq", v.fromSeq)
	d.Time("at", v.endedAt)
	d.Uint("previous", v.previous)
	return err
}

func describeVersionQueue(d *projections.Description, rest, value []byte) error {
	if len(rest) != 0 || d.Shard != projections.FirstShard(d.Shard.Partition()) {
		return projections.RowError("queue of ended versions", rest)
	}
	queue, err := decodeVersionQueue(value)
	d.InValue()
	d.Uint("last", queue.last)
	d.Uint("length", queue.length)
	if queue.length > 0 {
		d.Time("first", queue.firstEndedAt)
	}
	return err
}

func describeTombstone(d *projections.Description, rest, value []byte) error {
	if len(rest) != 16 || len(value) != 0 {
		return projections.RowError("tombstone", rest)
	}
	d.Field("hash", hex.EncodeToString(rest))
	return nil
}

func describeBoardDeletion(d *projections.Description, rest, value []byte) error {
	if len(rest) != 32 {
		return projections.RowError("deletion of a board", rest)
	}
	d.Field("hash-of-owner", hex.EncodeToString(rest[:16]))
	d.Field("hash", hex.EncodeToString(rest[16:]))
	d.InValue()
	deletion, err := decodeBoardDeletion(value)
	d.Time("first", deletion.firstTime)
	d.Flag("deleted", deletion.isDeleted)
	return err
}
