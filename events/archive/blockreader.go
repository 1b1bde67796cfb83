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
		next                            int
		seqs, times                     []uint64
		spans, counts, repeats, rejects []uint32
		bytes                           []uint32
	}
	users, items, names []string

	at     int // the next event
	forms  []uint8
	skips  []uint32
	slab   []events.Event
	timed  events.Micros
	offset uint64

	// Columns of fields that only some events have. Reading cuts the first value off.
	times, offsets, score                     []uint64
	served                                    []uint32
	user, peer, repinUser                     []uint32
	pin, item, servedItem, repinPin           []uint32
	board, source                             []uint32
	titles, attributes                        []string
	rejectSlots, rejectReasons                []uint32
	rejectFields, rejectMessages, rejectDatas []string
}

// decodeBlock reads what blockBuilder.append wrote, and fails with errFormat on anything else. Its memory is bounded even for
// hostile bytes. All columns are checked here, so that reading events needs no bounds checks of its own.
func decodeBlock(data []byte) (*block, error) {
	c := &cutter{b: data, budget: maxBlockBytes}
	records, evs := c.count(maxBlockRecords), c.count(maxBlockEvents)
	served, rejects := c.count(maxColumn), c.count(maxBlockRejects)
	b := &block{seq: c.uvarint()}
	start, n := binary.Varint(c.b)
	if n <= 0 {
		return nil, errFormat
	}
	c.b = c.b[n:]
	b.lastTime, b.timed = events.Micros(start), events.Micros(start)
	r := &b.records
	r.seqs, r.times = cutColumn[uint64](c, records, 0), cutColumn[uint64](c, records, 0)
	r.spans, r.counts = cutColumn[uint32](c, records, maxSpan+1), cutColumn[uint32](c, records, maxBlockEvents+1)
	r.bytes = cutColumn[uint32](c, records, 0)
	r.repeats, r.rejects = cutColumn[uint32](c, records, 0), cutColumn[uint32](c, records, maxBlockRejects+1)
	b.users, b.items, b.names = cutDictionary(c), cutDictionary(c), cutDictionary(c)
	b.forms, b.skips = cutColumn[uint8](c, evs, 0), cutColumn[uint32](c, evs, 1<<16)
	if c.failed || sum(r.counts) != uint64(evs) || sum(r.rejects) != uint64(rejects) {
		return nil, errFormat
	}
	fields, ok := b.count()
	if !ok {
		return nil, errFormat
	}
	b.cutFields(c, fields, served)
	b.rejectSlots = cutColumn[uint32](c, rejects, 0)
	b.rejectReasons = cutColumn[uint32](c, rejects, 0)
	b.rejectFields, b.rejectMessages, b.rejectDatas = cutTexts(c, rejects), cutTexts(c, rejects), cutTexts(c, rejects)
	if c.failed || len(c.b) > 0 || sum(b.served) != uint64(served) {
		return nil, errFormat
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
type tally struct {
	fields         [16]int // for each bit of a FieldSet
	timed, offsets int
}

func (t *tally) of(f events.FieldSet) int { return t.fields[bits.TrailingZeros16(uint16(f))] }

// count counts the fields of all events. It returns false if an event has an invalid kind.
func (b *block) count() (t tally, ok bool) {
	var forms [256]int
	for _, f := range b.forms {
		forms[f]++
	}
	for form := range forms {
		n := forms[form]
		if n == 0 {
			continue
		}
		if !kindOf(uint8(form)).Valid() {
			return t, false
		}
		f := fieldsOfForm[form]
		for bit := range t.fields {
			if f>>bit&1 == 1 {
				t.fields[bit] += n
			}
		}
		if form&formTimed != 0 {
			t.timed += n
		}
		if form&formBackfill != 0 {
			t.offsets += n
		}
	}
	return t, true
}

// cutFields reads the columns of fields.
func (b *block) cutFields(c *cutter, t tally, served int) {
	b.times = cutColumn[uint64](c, t.timed, 0)
	b.offsets = cutColumn[uint64](c, t.offsets, 0)
	b.served = cutColumn[uint32](c, t.of(hasItems), maxColumn)
	b.score = cutColumn[uint64](c, t.of(hasScore)+t.of(hasRead), 0)
	refs := func(n int, ids []string) []uint32 { return cutColumn[uint32](c, n, uint64(len(ids))) }
	b.user = refs(t.of(hasUser), b.users)
	b.peer = refs(t.of(hasPeer), b.users)
	b.repinUser = refs(t.of(hasRepin), b.users)
	b.pin = refs(t.of(hasPin), b.items)
	b.item = refs(t.of(hasItem), b.items)
	b.servedItem = refs(served, b.items)
	b.repinPin = refs(t.of(hasRepin), b.items)
	b.board = refs(t.of(hasBoard), b.names)
	b.source = refs(t.of(hasSource), b.names)
	b.titles = cutTexts(c, t.of(hasTitle))
	b.attributes = cutTexts(c, t.of(hasAttributes))
}

// next reads the next record into r, and returns false at the end of the block.
func (b *block) next(r *record) bool {
	c := &b.records
	i := c.next
	if i == len(c.seqs) {
		return false
	}
	c.next++
	b.seq += c.seqs[i]
	b.lastTime += events.Micros(c.times[i])
	*r = record{seq: b.seq, lastTime: b.lastTime, bytes: int(c.bytes[i]), repeats: int(c.repeats[i])}
	if n := int(c.counts[i]); n > 0 {
		r.events = b.cutEvents(n, b.lastTime-events.Micros(c.spans[i])+1)
	}
	if n := int(c.rejects[i]); n > 0 {
		r.rejects = b.cutRejects(n)
	}
	return true
}

// cutEvents reads the events of an envelope, whose slot 0 has the time base.
func (b *block) cutEvents(n int, base events.Micros) []events.Event {
	if len(b.slab) < n {
		b.slab = make([]events.Event, max(n, min(slabEvents, len(b.forms)-b.at)))
	}
	evs := b.slab[:n:n]
	b.slab = b.slab[n:]
	slot := uint32(0)
	for i := range evs {
		ev := &evs[i]
		form := b.forms[b.at]
		slot += b.skips[b.at]
		b.at++
		ev.Kind, ev.Seq, ev.Slot = kindOf(form), b.seq, uint16(slot)
		ev.Time = base + events.Micros(slot)
		slot++
		if form&(formBackfill|formTimed) != 0 {
			b.cutHistory(ev, form)
		}
		fields := fieldsOfForm[form]
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
			b.cutContent(ev, form, fields)
		}
	}
	return evs
}

// cutHistory reads the stored time of an event, and the offset of a backfilled event in its import.
func (b *block) cutHistory(ev *events.Event, form uint8) {
	if form&formTimed != 0 {
		b.timed += events.Micros(unzigzag(b.times[0]))
		ev.Time, b.times = b.timed, b.times[1:]
	}
	if form&formBackfill != 0 {
		ev.Backfill = true
		b.offset += uint64(unzigzag(b.offsets[0]))
		ev.Offset, b.offsets = b.offset, b.offsets[1:]
	}
}

// cutContent reads the fields that few kinds have.
func (b *block) cutContent(ev *events.Event, form uint8, fields events.FieldSet) {
	if fields&hasSource != 0 {
		ev.Source, b.source = b.names[b.source[0]], b.source[1:]
	}
	if fields&hasBoard != 0 {
		ev.Board, b.board = b.names[b.board[0]], b.board[1:]
	}
	if fields&hasPin != 0 {
		ev.Pin, b.pin = b.items[b.pin[0]], b.pin[1:]
		if form&formOwnItem != 0 {
			ev.Item = ev.Pin
		}
	}
	if fields&hasItems != 0 {
		n := b.served[0]
		ev.Items, b.served = make([]string, n), b.served[1:]
		for i, ref := range b.servedItem[:n] {
			ev.Items[i] = b.items[ref]
		}
		b.servedItem = b.servedItem[n:]
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

func (b *block) cutRejects(n int) []events.Reject {
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
