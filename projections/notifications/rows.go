package notifications

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fact is what is known about one fact: that an actor reacted to a pin, or that a pin of the actor re-pins it.
type fact struct {
	// backfillTime is the time of the latest backfilled beginning, or 0. liveTime is the time of the first live one since the last live end,
	// or 0.
	backfillTime, liveTime events.Micros
	// backfillItem and liveItem are the items that the re-pin showed then. They are empty for reactions.
	backfillItem, liveItem string
	// hasLiveEnd is set once there was a live end. Backfilled beginnings come before it and so do not count.
	hasLiveEnd bool
}

// The flags with which the value of a fact row begins.
const (
	factBackfilled byte = 1 << iota
	factLive
	factEnded

	// factBits is the number of flags.
	factBits = 3
)

// holds reports whether the fact holds.
func (f *fact) holds() bool { return f.liveTime != 0 || f.backfillTime != 0 && !f.hasLiveEnd }

// since returns since when a fact that holds does so, and the item that a re-pin shows. A backfilled beginning that no live fact ended
// decides, as for all relations in docs/semantics.md.
func (f *fact) since() (events.Micros, string) {
	if f.backfillTime != 0 && !f.hasLiveEnd {
		return f.backfillTime, f.backfillItem
	}
	return f.liveTime, f.liveItem
}

// appendRow appends the value of a row: the flags, and then for each time that is not 0 the time in 8 bytes and, for a re-pin, the item. It
// appends nothing for the zero fact, which has no row.
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

func decodeFact(row []byte, kind Kind) (f fact, err error) {
	if len(row) == 0 || row[0] == 0 || row[0] >= 1<<factBits {
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

// applyFact folds an event that begins or ends a fact, at the home of the recipient.
func (n *Notifications) applyFact(id *factID) error {
	ev := n.ev
	if ev.Backfill {
		// No history about a deleted user counts, neither of the actor nor of the recipient.
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
	case ev.Kind == events.Unreacted || ev.Kind == events.PinDeleted:
		after.liveTime, after.liveItem = 0, ""
		after.hasLiveEnd = true
	case ev.Backfill:
		if ev.Time > before.backfillTime {
			after.backfillTime, after.backfillItem = ev.Time, item
		}
	case before.liveTime == 0:
		after.liveTime, after.liveItem = ev.Time, item
	}
	if n.batch.BackfillsClosed() && after.hasLiveEnd && after.liveTime == 0 {
		after = fact{} // the end was kept only for late history
	}
	return n.writeFact(id, &before, &after)
}

func (n *Notifications) readFact(id *factID) (fact, error) {
	n.key = id.factKey(n.key[:0])
	row, ok, err := n.batch.Get(n.key)
	if err != nil || !ok {
		return fact{}, err
	}
	return decodeFact(row, id.kind)
}

// writeFact writes what is known about a fact, and the notification in the list of the recipient, as far as they change.
func (n *Notifications) writeFact(id *factID, before, after *fact) error {
	if *after == *before {
		return nil
	}

	n.key = id.factKey(n.key[:0])
	n.value = after.appendRow(n.value[:0], id.kind)
	n.setOrDelete(n.key, n.value)
	hadRow, hasRow := *before != fact{}, *after != fact{}
	if hadRow != hasRow {
		n.key = id.actorKey(n.key[:0])
		if hasRow {
			n.batch.Set(n.key, nil)
		} else {
			n.batch.Delete(n.key)
		}
	}

	beforeSince, beforeItem := before.since()
	afterSince, afterItem := after.since()
	if before.holds() == after.holds() && (!before.holds() || beforeSince == afterSince && beforeItem == afterItem) {
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

// appendEntry appends the value of a list row: the sequence of the envelope that brought the notification to its place, as a varint, and the item of a
// re-pin. A session of pages leaves out what came after it began, by this sequence.
func appendEntry(dst []byte, kind Kind, seq uint64, item string) []byte {
	dst = binary.AppendUvarint(dst, seq)
	if kind == Repinned {
		dst = events.AppendID(dst, item)
	}
	return dst
}

// decodeEntry reads a value that appendEntry wrote.
func decodeEntry(row []byte, kind Kind) (seq uint64, item string, err error) {
	seq, size := binary.Uvarint(row)
	if size <= 0 || size > 1 && row[size-1] == 0 {
		return 0, "", projections.RowError("notification", row)
	}
	rest := row[size:]
	if kind == Repinned {
		if item, rest, err = events.CutID(rest); err != nil {
			return 0, "", projections.RowError("notification", row)
		}
	}
	if len(rest) != 0 {
		return 0, "", projections.RowError("notification", row)
	}
	return seq, item, nil
}

// countEntries adds to the number of notifications of a kind, and drops the oldest if there are too many.
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
	// Iterators move towards older notifications only, so the oldest are found by passing the ones that stay. That is done once for every
	// quarter of Keep.
	if keep := n.settings.Keep; *count > int64(keep+keep/4) {
		if err := n.dropOldest(recipient, kind); err != nil {
			return err
		}
		*count = int64(keep)
	}
	n.writeState(recipient, &state)
	return nil
}

// dropOldest drops all notifications of a kind except the newest Keep, with everything that is known about their facts.
func (n *Notifications) dropOldest(recipient string, kind Kind) error {
	prefix := kindPrefix(nil, tagEntry, recipient, kind)
	var dropped [][]byte
	it := n.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for passed := 0; it.Next(); passed++ {
		if passed >= n.settings.Keep {
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
		n.key = id.actorKey(n.key[:0])
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
