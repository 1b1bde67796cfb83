package notifications

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fact is what a row knows about one relation: that an actor reacted to a pin of the recipient, or
// that a pin of the actor repeats it. The relation begins and ends as docs/semantics.md says for
// all relations: imported history comes before everything live, whenever it arrives.
type fact struct {
	// backfillTime is the time at which the latest imported event says that the relation began, or
	// 0. It is kept after a live end as well, although it does not count any more: so the row says
	// the same in whichever order events arrive.
	backfillTime events.Micros
	// liveTime is the time of the first live event that began the relation after the last live end,
	// or 0. Repetitions do not move it.
	liveTime events.Micros
	// backfillItem and liveItem are the items that the re-pin showed at these times. They are empty
	// for reactions.
	backfillItem, liveItem string
	// hasLiveEnd says that a live event has ended the relation at least once. Imported beginnings
	// came before that end, so they do not count.
	hasLiveEnd bool
}

// The flags with which the value of a fact row begins.
const (
	factBackfilled byte = 1 << iota
	factLive
	factEnded

	// numFactFlags is the number of flags.
	numFactFlags = 3
)

// holds reports whether the relation holds: a live event began it, or imported history did and no
// live event ended it.
func (f *fact) holds() bool { return f.liveTime != 0 || (f.backfillTime != 0 && !f.hasLiveEnd) }

// isKeptEnded reports whether the relation does not hold, although there is a row about it.
func (f *fact) isKeptEnded() bool { return *f != fact{} && !f.holds() }

// since returns the time at which a relation that holds began, and the item that the re-pin shows.
// An imported beginning that counts decides, because it came before the live one. The result means
// nothing if the relation does not hold.
func (f *fact) since() (events.Micros, string) {
	if f.backfillTime != 0 && !f.hasLiveEnd {
		return f.backfillTime, f.backfillItem
	}
	return f.liveTime, f.liveItem
}

// appendRow appends the value of a row: one byte of flags, and then backfillTime and liveTime, as
// far as they are not 0. A time has 8 bytes, big endian, and is followed by its item if the fact is
// a re-pin. appendRow appends nothing for the zero fact, which has no row.
func (f *fact) appendRow(dst []byte, kind Kind) []byte {
	if *f == (fact{}) {
		return dst
	}

	flags := len(dst)
	dst = append(dst, 0)
	appendBeginning := func(flag byte, at events.Micros, item string) {
		if at == 0 {
			return
		}
		dst[flags] |= flag
		dst = binary.BigEndian.AppendUint64(dst, uint64(at))
		if kind == Repinned {
			dst = events.AppendID(dst, item)
		}
	}
	appendBeginning(factBackfilled, f.backfillTime, f.backfillItem)
	appendBeginning(factLive, f.liveTime, f.liveItem)
	if f.hasLiveEnd {
		dst[flags] |= factEnded
	}
	return dst
}

// decodeFact reads a value that appendRow wrote.
func decodeFact(row []byte, kind Kind) (f fact, err error) {
	if len(row) == 0 || row[0] == 0 || row[0] >= 1<<numFactFlags {
		return f, projections.RowError("fact of a notification", row)
	}

	rest := row[1:]
	f.hasLiveEnd = row[0]&factEnded != 0
	for _, beginning := range []struct {
		flag byte
		time *events.Micros
		item *string
	}{
		{factBackfilled, &f.backfillTime, &f.backfillItem},
		{factLive, &f.liveTime, &f.liveItem},
	} {
		if row[0]&beginning.flag == 0 {
			continue
		}
		if len(rest) < 8 {
			return fact{}, projections.RowError("fact of a notification", row)
		}
		*beginning.time = events.Micros(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
		if kind == Repinned {
			if *beginning.item, rest, err = events.CutID(rest); err != nil {
				return fact{}, projections.RowError("fact of a notification", row)
			}
		}
		if *beginning.time <= 0 {
			return fact{}, projections.RowError("fact of a notification", row)
		}
	}
	if len(rest) != 0 {
		return fact{}, projections.RowError("fact of a notification", row)
	}
	return f, nil
}

// applyFact folds an event that begins or ends a relation. The store has the rows of the recipient.
func (n *Notifications) applyFact(id *factID) error {
	ev := n.ev
	if ev.Backfill {
		// Imported history about an actor or a recipient who was deleted does not count. A live
		// event may name such a user: the id has a new life then.
		for _, user := range []string{id.actor, id.recipient} {
			if erased, err := n.isErased(user); err != nil || erased {
				return err
			}
		}
	}

	before, err := n.readFact(id)
	if err != nil {
		return err
	}

	after := before
	item := ""
	if id.kind == Repinned {
		item = ev.Item
	}
	switch {
	case ev.Kind == events.Unreacted || ev.Kind == events.PinDeleted: // always live: history has no endings
		after.liveTime = 0
		after.liveItem = ""
		after.hasLiveEnd = true
	case ev.Backfill:
		if id.isLaterBackfill(ev.Time, item, &before) {
			after.backfillTime = ev.Time
			after.backfillItem = item
		}
	case before.liveTime == 0:
		after.liveTime = ev.Time
		after.liveItem = item
	}
	if n.batch.BackfillsClosed() && after.hasLiveEnd && after.liveTime == 0 {
		after = fact{} // the end was kept only for history that might still arrive, and none does
	}
	return n.writeFact(id, &before, &after)
}

// isLaterBackfill reports whether a backfill with a time and the item of the re-pin is later in the
// order of facts than the one that the row of the fact has.
func (id *factID) isLaterBackfill(at events.Micros, item string, f *fact) bool {
	if at != f.backfillTime || id.kind != Repinned {
		return at > f.backfillTime
	}
	// Re-pins of one time may arrive in any order, so their encodings decide, as far as the row has
	// their content.
	encode := func(item string) []byte {
		ev := events.Event{Kind: events.PinCreated, User: id.actor, Pin: id.repin, Item: item, RepinPin: id.pin}
		return ev.Canonical()
	}
	return bytes.Compare(encode(item), encode(f.backfillItem)) > 0
}

// readFact returns the fact of a row, or the zero fact if there is no row. It leaves the key of the
// row in n.key.
func (n *Notifications) readFact(id *factID) (fact, error) {
	n.key = id.factKey(n.key[:0])
	row, ok, err := n.batch.Get(n.key)
	if err != nil || !ok {
		return fact{}, err
	}
	return decodeFact(row, id.kind)
}

// writeFact replaces a fact by another one, and makes all other rows fit: the ended row, the
// notification in the list of the recipient, and the number of notifications.
func (n *Notifications) writeFact(id *factID, before, after *fact) error {
	if *after == *before {
		return nil
	}

	n.key = id.factKey(n.key[:0])
	n.value = after.appendRow(n.value[:0], id.kind)
	n.setOrDelete(n.key, n.value)

	// The ended row is there exactly while the fact has a row and does not hold. It has no value.
	hadEnded := before.isKeptEnded()
	hasEnded := after.isKeptEnded()
	if hadEnded != hasEnded {
		n.key = id.endedKey(n.key[:0])
		if hasEnded {
			n.batch.Set(n.key, nil)
		} else {
			n.batch.Delete(n.key)
		}
	}

	// The notification is in the list exactly while the fact holds. Its key has the time at which
	// the relation began, so another time moves it.
	beforeSince, beforeItem := before.since()
	afterSince, afterItem := after.since()
	bothHold := before.holds() && after.holds()
	neitherHolds := !before.holds() && !after.holds()
	if neitherHolds || bothHold && beforeSince == afterSince && beforeItem == afterItem {
		return nil
	}

	delta := int64(0)
	if before.holds() {
		n.key = id.entryKey(n.key[:0], beforeSince)
		n.batch.Delete(n.key)
		delta--
	}
	if after.holds() {
		n.key = id.entryKey(n.key[:0], afterSince)
		n.value = appendEntry(n.value[:0], id.kind, n.ev.Seq, afterItem)
		n.batch.Set(n.key, n.value)
		delta++
	}
	if delta == 0 {
		return nil
	}
	return n.countEntries(id.recipient, id.kind, delta)
}

// appendEntry appends the value of a notification in the list: the sequence of the envelope that
// put the notification where it is, as a varint, and the item of a re-pin. A page leaves out the
// notifications with a sequence after the beginning of its session.
func appendEntry(dst []byte, kind Kind, seq uint64, item string) []byte {
	dst = binary.AppendUvarint(dst, seq)
	if kind == Repinned {
		dst = events.AppendID(dst, item)
	}
	return dst
}

// splitEntryValue splits a value that appendEntry wrote. The item stays encoded.
func splitEntryValue(row []byte, kind Kind) (seq uint64, item []byte, err error) {
	seq, size := projections.Uvarint(row)
	if size <= 0 {
		return 0, nil, projections.RowError("notification", row)
	}
	rest := row[size:]
	if kind == Repinned {
		if item, rest, err = splitID(rest); err != nil {
			return 0, nil, projections.RowError("notification", row)
		}
	}
	if len(rest) != 0 {
		return 0, nil, projections.RowError("notification", row)
	}
	return seq, item, nil
}

// countEntries adds delta to the number of notifications of a kind. If there are more than a
// quarter too many, it drops all but the newest Keep.
func (n *Notifications) countEntries(recipient string, kind Kind, delta int64) error {
	state, err := readState(n.batch, &n.key, recipient)
	if err != nil {
		return err
	}
	count := state.count(kind)
	*count += delta
	if *count < 0 {
		return projections.RowError("notifications below zero", n.key)
	}

	// Iterators move from newer to older notifications, so dropOldest reads past all that stay. A
	// quarter of Keep may accumulate, so that it does that once for this many new notifications and
	// not for each.
	if keep := n.settings.Keep; *count > int64(keep+keep/4) {
		if err := n.dropOldest(recipient, kind, *count); err != nil {
			return err
		}
		*count = int64(keep)
	}
	n.writeState(recipient, &state)
	return nil
}

// dropOldest deletes all notifications of a kind except the newest Keep ([Settings]), with their
// fact rows. count is how many there are. If history about such a fact arrives later, it is a new
// fact.
func (n *Notifications) dropOldest(recipient string, kind Kind, count int64) error {
	prefix := kindPrefix(nil, tagEntry, recipient, kind)
	var dropped [][]byte
	it := n.batch.Iter(prefix, projections.PrefixEnd(prefix))
	// Stop at the last one: behind it are only those that were dropped before, which the iterator
	// of Pebble skips one by one until a compaction has removed them.
	for passed := int64(0); passed < count && it.Next(); passed++ {
		if passed >= int64(n.settings.Keep) {
			dropped = append(dropped, bytes.Clone(it.Key()))
		}
	}
	if err := it.Close(); err != nil {
		return err
	}

	for _, key := range dropped {
		id, _, err := cutEntryKey(recipient, kind, key[len(prefix):])
		if err != nil {
			return err
		}
		n.batch.Delete(key)
		n.key = id.factKey(n.key[:0])
		n.batch.Delete(n.key)
	}
	return nil
}

// setOrDelete writes a row, or deletes it if the value is empty.
func (n *Notifications) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		n.batch.Delete(key)
		return
	}
	n.batch.Set(key, value)
}
