package notifications

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fact is the content of a fact row: what events have said about one relation between an actor and
// a pin of the recipient. The relation is either that the actor reacted to the pin in a certain
// way, or that a certain pin of the actor repeats the pin. A factID names the relation.
//
// Imported events, the backfills, come before all live events in the order of facts, whenever they
// arrive (docs/semantics.md). So the row keeps the two apart. Imported events only begin a
// relation; every end is live.
type fact struct {
	// backfillTime is the time of the latest imported event that began the relation, or 0 if there
	// is none. After a live end it does not count any more, but stays: the row must not depend on
	// the order in which the end and the imported event arrived. Once all imports are closed,
	// the next event that leaves the relation ended deletes the whole row (applyFact).
	backfillTime events.Micros
	// liveTime is the time of the first live event that began the relation after its last live end,
	// or 0 if there is none. Further such events change neither liveTime nor liveItem.
	liveTime events.Micros
	// backfillItem and liveItem are the items that the re-pin showed according to the events of
	// these times. They are empty for a reaction, whose item is part of the factID.
	backfillItem, liveItem string
	// hasLiveEnd says that a live event has ended the relation at least once. All imported events
	// come before this end, so backfillTime does not count.
	hasLiveEnd bool
}

// The flags with which the value of a fact row begins.
const (
	factBackfilled byte = 1 << iota
	factLive
	factEnded

	// numFactFlags is the number of flags above. decodeFact refuses rows with other flags.
	numFactFlags = 3
)

// holds reports whether the relation holds: a live event began it and none ended it since, or an
// imported event began it and no live event ever ended it.
func (f *fact) holds() bool { return f.liveTime != 0 || (f.backfillTime != 0 && !f.hasLiveEnd) }

// needsEndedRow reports whether the relation needs an ended row: it does not hold, but has a fact
// row. The ended row lets eraseRecipient find the fact row, because the relation is in no list.
func (f *fact) needsEndedRow() bool { return *f != fact{} && !f.holds() }

// since returns the time at which a relation that holds began, and the item that the re-pin showed
// then, which is empty for a reaction. If both an imported and a live event say that it began, the
// imported one decides, because it comes first in the order of facts. The result means nothing if
// the relation does not hold.
func (f *fact) since() (events.Micros, string) {
	if f.backfillTime != 0 && !f.hasLiveEnd {
		return f.backfillTime, f.backfillItem
	}
	return f.liveTime, f.liveItem
}

// appendRow appends the value of a fact row: one byte of flags, then backfillTime, then liveTime. A
// time that is 0 is left out, and its flag is not set. A time takes 8 bytes, big endian. For a
// re-pin, the encoded item follows each time. appendRow appends nothing for the zero fact, which
// has no row.
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

// decodeFact reads a value that appendRow wrote. It returns an error of [projections.RowError] for
// other bytes.
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

// applyFact folds n.ev, which begins or ends the relation that id names. The store must hold the
// partition of the recipient.
func (n *Notifications) applyFact(id *factID) error {
	ev := n.ev
	if ev.Backfill {
		// Imported history about a user who was deleted does not count. Live events are not
		// checked, because a live event about the id of a deleted user starts afresh.
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
	case ev.Kind == events.Unreacted || ev.Kind == events.PinDeleted: // these kinds are always live
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
		// A row keeps an end only because history from before the end might still arrive, and now
		// none will. A row that has ended before the imports were closed stays until the next event
		// about it, or until its actor or its recipient is deleted.
		after = fact{}
	}
	return n.writeFact(id, &before, &after)
}

// isLaterBackfill reports whether an imported event is later in the order of facts than the one
// that f has as backfillTime and backfillItem. The imported event has the time at, and the re-pin
// shows the item, which is empty for a reaction. If f has no imported event, the answer is true.
func (id *factID) isLaterBackfill(at events.Micros, item string, f *fact) bool {
	if at != f.backfillTime || id.kind != Repinned {
		return at > f.backfillTime
	}
	// Several imported creations of one re-pin may have the same time, and may arrive in any order.
	// The one with the larger encoding counts as the later (docs/semantics.md). The row has neither
	// board nor attributes, so both encodings leave them out, and only the items differ. Comparing
	// the items alone could give another order, because an encoding has the length of the item
	// before the item.
	encode := func(item string) []byte {
		ev := events.Event{Kind: events.PinCreated, User: id.actor, Pin: id.repin, Item: item, RepinPin: id.pin}
		return ev.Canonical()
	}
	return bytes.Compare(encode(item), encode(f.backfillItem)) > 0
}

// readFact returns what the fact row of the relation says, or the zero fact if there is no row. It
// leaves the key of the row in n.key.
func (n *Notifications) readFact(id *factID) (fact, error) {
	n.key = id.factKey(n.key[:0])
	row, ok, err := n.batch.Get(n.key)
	if err != nil || !ok {
		return fact{}, err
	}
	return decodeFact(row, id.kind)
}

// writeFact replaces the fact before, which the fact row has, by the fact after. It changes all
// rows that depend on the fact row as well: the ended row, the notification in the list of the
// recipient, and the number of notifications, which may drop the oldest ones (countEntries). A zero
// fact stands for no row.
func (n *Notifications) writeFact(id *factID, before, after *fact) error {
	if *after == *before {
		return nil
	}

	n.key = id.factKey(n.key[:0])
	n.value = after.appendRow(n.value[:0], id.kind)
	n.setOrDelete(n.key, n.value)

	hadEndedRow := before.needsEndedRow()
	needsEndedRow := after.needsEndedRow()
	if hadEndedRow != needsEndedRow {
		n.key = id.endedKey(n.key[:0])
		if needsEndedRow {
			n.batch.Set(n.key, nil) // the key says everything
		} else {
			n.batch.Delete(n.key)
		}
	}

	// The notification is in the list exactly while the relation holds. Its key has the time at
	// which the relation began, and its value has the item of the re-pin. So a change of either
	// writes the row again, with the sequence of this envelope: pages of sessions that began
	// earlier then leave the notification out.
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

// appendEntry appends the value of a list row: seq as a varint, and for a re-pin the encoded item.
// seq is the sequence of the envelope that wrote the row with this time and item. A page leaves out
// the notifications whose seq is after the position at which the session of the page began.
func appendEntry(dst []byte, kind Kind, seq uint64, item string) []byte {
	dst = binary.AppendUvarint(dst, seq)
	if kind == Repinned {
		dst = events.AppendID(dst, item)
	}
	return dst
}

// splitEntryValue splits a value that appendEntry wrote. item is the encoded item of a re-pin, and
// part of row; it is nil for a reaction. splitEntryValue returns an error of [projections.RowError]
// for other bytes.
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

// countEntries adds delta to the number of notifications of a recipient and a kind. If the number
// is then above Keep ([Settings]) by more than a quarter of Keep, countEntries drops all but the
// newest Keep.
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

	// The list is newest first, and iterators move forward only, so dropOldest must pass all
	// notifications that stay. If it ran for each new notification, each would cost a scan of the
	// list. So a quarter of Keep may accumulate before it runs.
	if keep := n.settings.Keep; *count > int64(keep+keep/4) {
		if err := n.dropOldest(recipient, kind, *count); err != nil {
			return err
		}
		*count = int64(keep)
	}
	n.writeState(recipient, &state)
	return nil
}

// dropOldest deletes all notifications of a recipient and a kind except the newest Keep
// ([Settings]), and their fact rows. count is how many notifications there are. Nothing is known
// any more about a relation that was dropped, so a later event that begins it, imported or live,
// makes a new notification. The caller must correct the number of notifications.
func (n *Notifications) dropOldest(recipient string, kind Kind, count int64) error {
	prefix := kindPrefix(nil, tagEntry, recipient, kind)
	var dropped [][]byte
	it := n.batch.Iter(prefix, projections.PrefixEnd(prefix))
	// passed < count ends the loop at the last notification. Otherwise a last call of Next would
	// look for another one, and Pebble would skip the deleted rows behind the last one by one,
	// until a compaction has removed them. There are many: those that earlier calls dropped.
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
