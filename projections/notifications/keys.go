package notifications

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows, in physical order. B is a recipient, p a pin of B, and A an actor. k is the kind of a
// notification in one byte. ^t is the complement of a time in 8 bytes, so that the latest time
// comes first. detail tells apart several facts of one actor about one pin: for a reaction it is
// the item and the kind of the reaction, ended by 0x00; for a re-pin it is the re-pin.
//
// A key begins with the shard of its first id and the tag, and the first id is the home of the row.
// A row marked "part of B" is a row of the partition of B, in the first shard of that partition. A
// row marked "store" has no home and is in the shard for rows of the store as a whole.
//
//	tag   key                          value    holds
//	0x90  part of B: A B k p detail    fact     everything that is known about a fact
//	0x91  B k ^t p A detail            entry    the fact holds since t
//	0x92  B k p A detail               -        the fact has a row of tag 0x90, but does not hold
//	0x93  B                            state    number of rows of tag 0x91 of each kind, and the markers of all groups
//	0x94  B                            groups   the markers of the groups that were marked last
//	0x95  store: hash(A)               -        A was deleted (a keyed hash stands for the id)
const (
	tagFact projections.Tag = projections.FirstNotificationsTag + iota
	tagEntry
	tagEnded
	tagState
	tagGroupMarkers
	tagTombstone
)

// IteratedTags returns the tags of rows that are only read with iterators. It is part of
// [projections.IteratedOnly].
func (*Notifications) IteratedTags() []projections.Tag { return []projections.Tag{tagEntry, tagEnded} }

// Kind is the kind of a notification.
type Kind uint8

// The kinds. Their values are part of keys and of the ids of groups, and never change. There are no
// rows of kind Followed: the graph has them.
const (
	Followed Kind = 1
	Reacted  Kind = 2
	Repinned Kind = 3
)

// storedKinds are the kinds that have rows.
var storedKinds = [...]Kind{Reacted, Repinned}

// factID names a fact.
type factID struct {
	recipient string
	kind      Kind
	pin       string
	actor     string
	// item and reaction tell apart the reactions of an actor, and repin the actor's re-pins.
	item, reaction, repin string
}

// appendDetail appends the detail of a key.
func (id *factID) appendDetail(dst []byte) []byte {
	if id.kind == Repinned {
		return events.AppendID(dst, id.repin)
	}
	// No kind of reactions contains a zero byte, so none is a prefix of another.
	return append(append(events.AppendID(dst, id.item), id.reaction...), 0)
}

// cutDetail reads a detail, which must be the rest of a key.
func (id *factID) cutDetail(rest []byte) (err error) {
	if id.kind == Repinned {
		if id.repin, rest, err = events.CutID(rest); err == nil && len(rest) != 0 {
			err = projections.RowError("re-pin", rest)
		}
		return err
	}
	if id.item, rest, err = events.CutID(rest); err != nil {
		return err
	}
	name, rest, found := bytes.Cut(rest, []byte{0})
	id.reaction = string(name)
	if !found || len(rest) != 0 || !events.IsReaction(id.reaction) || events.ReactionOf(id.reaction) != id.reaction ||
		events.IsPrivateReaction(id.reaction) {
		return projections.RowError("kind of a reaction", name)
	}
	return nil
}

// kindPrefix appends the prefix of the rows of a tag of a recipient and a kind.
func kindPrefix(dst []byte, tag projections.Tag, recipient string, kind Kind) []byte {
	return append(projections.AppendKey(dst, tag, recipient), byte(kind))
}

// factKey appends the key of the row with what is known about a fact.
func (id *factID) factKey(dst []byte) []byte {
	dst = actorPrefix(dst, events.ShardOf(id.recipient).Partition(), id.actor)
	dst = append(events.AppendID(dst, id.recipient), byte(id.kind))
	return id.appendDetail(events.AppendID(dst, id.pin))
}

// actorPrefix appends the prefix of the rows with what is known about the facts of an actor in a
// partition.
func actorPrefix(dst []byte, partition uint8, actor string) []byte {
	return events.AppendID(projections.AppendPartition(dst, partition, tagFact), actor)
}

// entryKey appends the key of a notification in the list of its recipient.
func (id *factID) entryKey(dst []byte, since events.Micros) []byte {
	dst = binary.BigEndian.AppendUint64(kindPrefix(dst, tagEntry, id.recipient, id.kind), ^uint64(since))
	return id.appendDetail(events.AppendID(events.AppendID(dst, id.pin), id.actor))
}

// endedKey appends the key by which a fact that does not hold is found when its recipient is
// deleted.
func (id *factID) endedKey(dst []byte) []byte {
	dst = kindPrefix(dst, tagEnded, id.recipient, id.kind)
	return id.appendDetail(events.AppendID(events.AppendID(dst, id.pin), id.actor))
}

// cutKind reads the kind of a notification.
func cutKind(rest []byte) (Kind, []byte, error) {
	if len(rest) == 0 || Kind(rest[0]) != Reacted && Kind(rest[0]) != Repinned {
		return 0, nil, projections.RowError("kind of a notification", rest)
	}
	return Kind(rest[0]), rest[1:], nil
}

// cutFactKey reads the part of the key of a fact row that follows the actor.
func cutFactKey(actor string, rest []byte) (id factID, err error) {
	id.actor = actor
	if id.recipient, rest, err = events.CutID(rest); err != nil {
		return id, err
	}
	if id.kind, rest, err = cutKind(rest); err != nil {
		return id, err
	}
	if id.pin, rest, err = events.CutID(rest); err != nil {
		return id, err
	}
	return id, id.cutDetail(rest)
}

// cutEndedKey reads the part of the key of an ended row that follows the kind.
func cutEndedKey(recipient string, kind Kind, rest []byte) (id factID, err error) {
	id.recipient = recipient
	id.kind = kind
	if id.pin, rest, err = events.CutID(rest); err != nil {
		return id, err
	}
	if id.actor, rest, err = events.CutID(rest); err != nil {
		return id, err
	}
	return id, id.cutDetail(rest)
}

// cutEntryKey reads the part of the key of a list row that follows the kind.
func cutEntryKey(recipient string, kind Kind, rest []byte) (id factID, since events.Micros, err error) {
	if since, rest, err = cutEntryTime(rest); err != nil {
		return id, 0, err
	}
	id, err = cutEndedKey(recipient, kind, rest)
	return id, since, err
}

// cutEntryTime reads the time in the key of a list row.
func cutEntryTime(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < 8 || ^binary.BigEndian.Uint64(rest) > math.MaxInt64 {
		return 0, nil, projections.RowError("time of a notification", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[8:], nil
}

// entry is a row of the list of a recipient, as the row has it. Most rows that a query reads add
// nothing but an actor to a group, so the ids are decoded only where an answer has them. The slices
// are parts of the row.
type entry struct {
	since events.Micros
	// pin, actor and item are encoded ids.
	pin, actor, item []byte
	// detail is the detail of the key.
	detail []byte
	// seq is the sequence of the envelope that brought the notification to its place.
	seq uint64
}

// splitEntry splits a row of the list into its parts. rest is the part of the key that follows the
// kind.
func splitEntry(kind Kind, rest, value []byte) (e entry, err error) {
	if e.since, rest, err = cutEntryTime(rest); err != nil {
		return e, err
	}
	if e.pin, rest, err = splitID(rest); err != nil {
		return e, err
	}
	if e.actor, e.detail, err = splitID(rest); err != nil {
		return e, err
	}
	if e.seq, e.item, err = splitEntryValue(value, kind); err != nil {
		return e, err
	}

	// The value has the item of a re-pin. The item of a reaction is at the beginning of the detail.
	if kind == Reacted {
		e.item, _, err = splitID(e.detail)
	}
	return e, err
}

// splitID returns the encoded id with which a key begins, and the rest of the key.
func splitID(key []byte) (id, rest []byte, err error) {
	if rest, err = events.SkipID(key); err != nil {
		return nil, nil, err
	}
	return key[:len(key)-len(rest)], rest, nil
}

// tombstoneKey appends the key of the row of a deleted user.
func tombstoneKey(dst []byte, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, projections.StoreShard, tagTombstone), hash[:]...)
}
