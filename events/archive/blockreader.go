package archive

import (
	"encoding/binary"
	"math/bits"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// slabEvents is the number of events allocated at once, so that a small envelope costs no allocation of its own.
const slabEvents = 2048

// block is a decoded block, and how far it was read. Its strings are shared by all events that are read from it.
type block struct {
	seq      uint64
	lastTime events.Micros
	records  struct {
		readRecord                      int
		seqs, times                     []uint64
		spans, counts, repeats, rejects []uint32
		bytes                           []uint32
	}
	users, items, names []string

	nextEvent        int // the next event
	forms            []uint8
	skips            []uint32
	unusedEvents     []events.Event
	lastStoredTime   events.Micros
	lastStoredOffset uint64

	// Columns of fields that only some events have. Reading cuts the first value off.
	times, offsets, score                     []uint64
	servedCounts                              []uint32
	user, peer, repinUser                     []uint32
	pin, item, servedItems, repinPin          []uint32
	board, source                             []uint32
	titles, attributes                        []string
	rejectSlots, rejectReasons                []uint32
	rejectFields, rejectMessages, rejectDatas []string
}

// decodeBlock reads what blockBuilder.append wrote, and fails with errFormat on anything else. Its memory is bounded even for
// hostile bytes. All columns are checked here, so that reading events needs no bounds checks of its own.
func decodeBlock(data []byte) (*block, error) {
	c := &columnReader{rest: data, decompressBudget: maxBlockBytes}
	records, evs := c.readCount(maxBlockRecords), c.readCount(maxBlockEvents)
	served, rejects := c.readCount(maxColumn), c.readCount(maxBlockRejects)
	b := &block{seq: c.readUvarint()}
	start, n := binary.Varint(c.rest)
	if n <= 0 {
		return nil, errMalformed
	}
	c.rest = c.rest[n:]
	b.lastTime, b.lastStoredTime = events.Micros(start), events.Micros(start)
	r := &b.records
	r.seqs, r.times = readColumn[uint64](c, records, 0), readColumn[uint64](c, records, 0)
	r.spans, r.counts = readColumn[uint32](c, records, maxTimeSpan+1), readColumn[uint32](c, records, maxBlockEvents+1)
	r.bytes = readColumn[uint32](c, records, 0)
	r.repeats, r.rejects = readColumn[uint32](c, records, 0), readColumn[uint32](c, records, maxBlockRejects+1)
	b.users, b.items, b.names = readDictionary(c), readDictionary(c), readDictionary(c)
	b.forms, b.skips = readColumn[uint8](c, evs, 0), readColumn[uint32](c, evs, 1<<16)
	if c.failed || sum(r.counts) != uint64(evs) || sum(r.rejects) != uint64(rejects) {
		return nil, errMalformed
	}
	fields, ok := b.countFields()
	if !ok {
		return nil, errMalformed
	}
	b.readFieldColumns(c, fields, served)
	b.rejectSlots = readColumn[uint32](c, rejects, 0)
	b.rejectReasons = readColumn[uint32](c, rejects, 0)
	b.rejectFields, b.rejectMessages, b.rejectDatas = readTexts(c, rejects), readTexts(c, rejects), readTexts(c, rejects)
	if c.failed || len(c.rest) > 0 || sum(b.servedCounts) != uint64(served) {
		return nil, errMalformed
	}
	return b, nil
}

func sum(values []uint32) (total uint64) {
	for _, v := range values {
		total += uint64(v)
	}
	return total
}

// tally counts, for each field, the events of a block that have it. These are the lengths of the columns, which are not stored.
type fieldCounts struct {
	fields               [16]int // for each bit of a FieldSet
	storedTimes, offsets int
}

func (t *fieldCounts) with(f events.FieldSet) int { return t.fields[bits.TrailingZeros16(uint16(f))] }

// count counts the fields of all events. It returns false if an event has an invalid kind.
func (b *block) countFields() (t fieldCounts, ok bool) {
	var forms [256]int
	for _, f := range b.forms {
		forms[f]++
	}
	for form := range forms {
		n := forms[form]
		if n == 0 {
			continue
		}
		if !kindOfForm(uint8(form)).Valid() {
			return t, false
		}
		f := fieldsByForm[form]
		for bit := range t.fields {
			if f>>bit&1 == 1 {
				t.fields[bit] += n
			}
		}
		if form&formHasTime != 0 {
			t.storedTimes += n
		}
		if form&formBackfill != 0 {
			t.offsets += n
		}
	}
	return t, true
}

// cutFields reads the columns of fields.
func (b *block) readFieldColumns(c *columnReader, t fieldCounts, served int) {
	b.times = readColumn[uint64](c, t.storedTimes, 0)
	b.offsets = readColumn[uint64](c, t.offsets, 0)
	b.servedCounts = readColumn[uint32](c, t.with(hasItems), maxColumn)
	b.score = readColumn[uint64](c, t.with(hasScore)+t.with(hasRead), 0)
	refs := func(n int, ids []string) []uint32 { return readColumn[uint32](c, n, uint64(len(ids))) }
	b.user = refs(t.with(hasUser), b.users)
	b.peer = refs(t.with(hasPeer), b.users)
	b.repinUser = refs(t.with(hasRepin), b.users)
	b.pin = refs(t.with(hasPin), b.items)
	b.item = refs(t.with(hasItem), b.items)
	b.servedItems = refs(served, b.items)
	b.repinPin = refs(t.with(hasRepin), b.items)
	b.board = refs(t.with(hasBoard), b.names)
	b.source = refs(t.with(hasSource), b.names)
	b.titles = readTexts(c, t.with(hasTitle))
	b.attributes = readTexts(c, t.with(hasAttributes))
}

// next reads the next record into r, and returns false at the end of the block.
func (b *block) readRecord(r *record) bool {
	c := &b.records
	i := c.readRecord
	if i == len(c.seqs) {
		return false
	}
	c.readRecord++
	b.seq += c.seqs[i]
	b.lastTime += events.Micros(c.times[i])
	*r = record{seq: b.seq, lastTime: b.lastTime, bytes: int(c.bytes[i]), repeats: int(c.repeats[i])}
	if n := int(c.counts[i]); n > 0 {
		r.events = b.readEvents(n, b.lastTime-events.Micros(c.spans[i])+1)
	}
	if n := int(c.rejects[i]); n > 0 {
		r.rejects = b.readRejects(n)
	}
	return true
}

// cutEvents reads the events of an envelope, whose slot 0 has the time base.
func (b *block) readEvents(n int, base events.Micros) []events.Event {
	if len(b.unusedEvents) < n {
		b.unusedEvents = make([]events.Event, max(n, min(slabEvents, len(b.forms)-b.nextEvent)))
	}
	evs := b.unusedEvents[:n:n]
	b.unusedEvents = b.unusedEvents[n:]
	slot := uint32(0)
	for i := range evs {
		ev := &evs[i]
		form := b.forms[b.nextEvent]
		slot += b.skips[b.nextEvent]
		b.nextEvent++
		ev.Kind, ev.Seq, ev.Slot = kindOfForm(form), b.seq, uint16(slot)
		ev.Time = base + events.Micros(slot)
		slot++
		if form&(formBackfill|formHasTime) != 0 {
			b.readTimeAndOffset(ev, form)
		}
		fields := fieldsByForm[form]
		if fields&hasUser != 0 {
			ev.User, b.user = b.users[b.user[0]], b.user[1:]
		}
		if fields&hasPeer != 0 {
			ev.Peer, b.peer = b.users[b.peer[0]], b.peer[1:]
		}
		if fields&hasItem != 0 {
			ev.Item, b.item = b.items[b.item[0]], b.item[1:]
		}
		if fields&^(hasUser|hasPeer|hasItem) != 0 {
			b.readRareFields(ev, form, fields)
		}
	}
	return evs
}

// cutHistory reads the stored time of an event, and the offset of a backfilled event in its import.
func (b *block) readTimeAndOffset(ev *events.Event, form uint8) {
	if form&formHasTime != 0 {
		b.lastStoredTime += events.Micros(unzigzag(b.times[0]))
		ev.Time, b.times = b.lastStoredTime, b.times[1:]
	}
	if form&formBackfill != 0 {
		ev.Backfill = true
		b.lastStoredOffset += uint64(unzigzag(b.offsets[0]))
		ev.Offset, b.offsets = b.lastStoredOffset, b.offsets[1:]
	}
}

// cutContent reads the fields that few kinds have.
func (b *block) readRareFields(ev *events.Event, form uint8, fields events.FieldSet) {
	if fields&hasSource != 0 {
		ev.Source, b.source = b.names[b.source[0]], b.source[1:]
	}
	if fields&hasBoard != 0 {
		ev.Board, b.board = b.names[b.board[0]], b.board[1:]
	}
	if fields&hasPin != 0 {
		ev.Pin, b.pin = b.items[b.pin[0]], b.pin[1:]
		if form&formItemIsPin != 0 {
			ev.Item = ev.Pin
		}
	}
	if fields&hasItems != 0 {
		n := b.servedCounts[0]
		ev.Items, b.servedCounts = make([]string, n), b.servedCounts[1:]
		for i, ref := range b.servedItems[:n] {
			ev.Items[i] = b.items[ref]
		}
		b.servedItems = b.servedItems[n:]
	}
	if fields&hasRepin != 0 {
		ev.RepinUser, b.repinUser = b.users[b.repinUser[0]], b.repinUser[1:]
		ev.RepinPin, b.repinPin = b.items[b.repinPin[0]], b.repinPin[1:]
	}
	if fields&hasTitle != 0 {
		ev.Title, b.titles = b.titles[0], b.titles[1:]
	}
	if fields&hasAttributes != 0 {
		if a := b.attributes[0]; a != "" {
			ev.Attributes = []byte(a)
		}
		b.attributes = b.attributes[1:]
	}
	if fields&hasRead != 0 {
		ev.Read, b.score = ev.Time-events.Micros(unzigzag(b.score[0])), b.score[1:]
	}
	if fields&hasScore != 0 {
		ev.Score, b.score = unzigzag(b.score[0]), b.score[1:]
	}
	ev.FillDerivedFields()
}

func (b *block) readRejects(n int) []events.Reject {
	rejects := make([]events.Reject, n)
	for i := range rejects {
		slot := int(unzigzag(uint64(b.rejectSlots[i])))
		rejects[i] = events.Reject{
			Seq: b.seq, Slot: slot, Data: []byte(b.rejectDatas[i]),
			Rejection: events.Rejection{
				Index: max(slot, 0), Reason: skeinv1.Reason(unzigzag(uint64(b.rejectReasons[i]))),
				Field: b.rejectFields[i], Message: b.rejectMessages[i],
			},
		}
	}
	b.rejectSlots, b.rejectReasons = b.rejectSlots[n:], b.rejectReasons[n:]
	b.rejectFields, b.rejectMessages, b.rejectDatas = b.rejectFields[n:], b.rejectMessages[n:], b.rejectDatas[n:]
	return rejects
}
