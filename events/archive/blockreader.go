package archive

import (
	"encoding/binary"
	"math/bits"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// slabEvents is the number of events allocated at once, so that a small envelope costs no
// allocation of its own.
const slabEvents = 2048

// block is a decoded block and the position up to which it was read. All events that are read from
// it share its strings.
type block struct {
	// seq and lastTime are those of the last record that was read, or the values before the first
	// record.
	seq      uint64
	lastTime events.Micros

	// records has one value per record in each column, as in blockBuilder. next is the index of the
	// next record.
	records struct {
		next                            int
		seqs, times                     []uint64
		spans, counts, repeats, rejects []uint32
		bytes                           []uint32
	}

	// The dictionaries.
	users, items, names []string

	nextEvent int      // index in forms and skips
	forms     []uint8  // one per event
	skips     []uint32 // number of empty slots before each event

	unusedEvents     []events.Event // allocated, not yet returned
	lastStoredTime   events.Micros
	lastStoredOffset uint64

	// Columns of fields that only some events have. Reading an event removes its values from the
	// front.
	times, offsets, score                     []uint64
	servedCounts                              []uint32
	user, peer, repinUser                     []uint32
	pin, item, servedItems, repinPin          []uint32
	board, source                             []uint32
	reactionKind, reactionPinOwner            []uint32
	reactionPin                               []uint32
	titles, attributes                        []string
	rejectSlots, rejectReasons                []uint32
	rejectFields, rejectMessages, rejectDatas []string
}

// decodeBlock reads what blockBuilder.appendEncoded wrote, and fails with errMalformed on anything
// else. It allocates a limited amount of memory even if the bytes are hostile. It checks all
// columns, so that reading events from the block needs no checks.
func decodeBlock(data []byte) (*block, error) {
	c := &columnReader{rest: data, decompressBudget: maxBlockBytes}
	records := c.readCount(maxBlockRecords)
	evs := c.readCount(maxBlockEvents)
	served := c.readCount(maxColumn)
	rejects := c.readCount(maxBlockRejects)

	b := &block{seq: c.readUvarint()}
	startTime, n := binary.Varint(c.rest)
	if n <= 0 {
		return nil, errMalformed
	}
	c.rest = c.rest[n:]
	b.lastTime = events.Micros(startTime)
	b.lastStoredTime = events.Micros(startTime)

	r := &b.records
	r.seqs = readColumn[uint64](c, records, 0)
	r.times = readColumn[uint64](c, records, 0)
	r.spans = readColumn[uint32](c, records, maxTimeSpan+1)
	r.counts = readColumn[uint32](c, records, maxBlockEvents+1)
	r.bytes = readColumn[uint32](c, records, 0)
	r.repeats = readColumn[uint32](c, records, 0)
	r.rejects = readColumn[uint32](c, records, maxBlockRejects+1)

	b.users = readDictionary(c)
	b.items = readDictionary(c)
	b.names = readDictionary(c)

	b.forms = readColumn[uint8](c, evs, 0)
	b.skips = readColumn[uint32](c, evs, 1<<16)
	if c.failed || sum(r.counts) != uint64(evs) || sum(r.rejects) != uint64(rejects) {
		return nil, errMalformed
	}

	// The forms determine how many values the columns of fields have.
	counts, ok := b.countFields()
	if !ok {
		return nil, errMalformed
	}
	b.readFieldColumns(c, counts, served)

	b.rejectSlots = readColumn[uint32](c, rejects, 0)
	b.rejectReasons = readColumn[uint32](c, rejects, 0)
	b.rejectFields = readTexts(c, rejects)
	b.rejectMessages = readTexts(c, rejects)
	b.rejectDatas = readTexts(c, rejects)
	b.readLaterGroups(c, counts)
	if c.failed || len(c.rest) > 0 || sum(b.servedCounts) != uint64(served) {
		return nil, errMalformed
	}
	return b, nil
}

// sum returns the sum of a column.
func sum[T uint32 | uint64](values []T) (total uint64) {
	for _, v := range values {
		total += uint64(v)
	}
	return total
}

// fieldCounts contains, for each field, the number of events of a block that have it. These are the
// lengths of the columns, which are not stored.
type fieldCounts struct {
	fields               [32]int // for each bit of a FieldSet
	storedTimes, offsets int
}

// eventsWith returns the number of events that have a field. f must contain exactly one field.
func (t *fieldCounts) eventsWith(f events.FieldSet) int {
	return t.fields[bits.TrailingZeros32(uint32(f))]
}

// countFields counts the fields of all events. It returns false if an event has an invalid kind.
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
		if kind, _ := events.ReplaceFormerKind(numberOfForm(uint8(form))); !kind.Valid() {
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

// readFieldColumns reads the columns of the fields. served is the number of items of all served
// events together.
func (b *block) readFieldColumns(c *columnReader, t fieldCounts, served int) {
	b.times = readColumn[uint64](c, t.storedTimes, 0)
	b.offsets = readColumn[uint64](c, t.offsets, 0)
	b.servedCounts = readColumn[uint32](c, t.eventsWith(hasItems), maxColumn)
	b.score = readColumn[uint64](c, t.eventsWith(hasScore)+t.eventsWith(hasRead)+t.eventsWith(hasSettings)+t.eventsWith(hasUntil), 0)

	// A reference is an index in a dictionary, and must be below its length.
	refs := func(n int, ids []string) []uint32 { return readColumn[uint32](c, n, uint64(len(ids))) }
	b.user = refs(t.eventsWith(hasUser), b.users)
	b.peer = refs(t.eventsWith(hasPeer), b.users)
	b.repinUser = refs(t.eventsWith(hasRepin), b.users)
	b.pin = refs(t.eventsWith(hasPin), b.items)
	b.item = refs(t.eventsWith(hasItem), b.items)
	b.servedItems = refs(served, b.items)
	b.repinPin = refs(t.eventsWith(hasRepin), b.items)
	b.board = refs(t.eventsWith(hasBoard)+t.eventsWith(hasGroup), b.names)
	b.source = refs(t.eventsWith(hasSource), b.names)

	b.titles = readTexts(c, t.eventsWith(hasTitle))
	b.attributes = readTexts(c, t.eventsWith(hasAttributes))
}

// readLaterGroups reads the groups of columns with which the block ends. A block without the group
// of the reactions leaves its columns empty, and the events are read without these fields.
func (b *block) readLaterGroups(c *columnReader, t fieldCounts) {
	n := t.eventsWith(hasReaction)
	if c.failed || len(c.rest) == 0 || n == 0 || c.readUvarint() != groupReactions {
		return // if anything is left, the caller refuses the block
	}
	b.reactionKind = readColumn[uint32](c, n, uint64(len(b.names)))
	b.reactionPinOwner = readColumn[uint32](c, n, uint64(len(b.users)))
	b.reactionPin = readColumn[uint32](c, n, uint64(len(b.items)))
}

// readRecord reads the next record into r, and returns false at the end of the block.
func (b *block) readRecord(r *record) bool {
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
		// The span counts both ends, hence the 1.
		r.events = b.readEvents(n, b.lastTime-events.Micros(c.spans[i])+1)
	}
	if n := int(c.rejects[i]); n > 0 {
		r.rejects = b.readRejects(n)
	}
	return true
}

// readEvents reads the n events of an envelope. base is the time of slot 0.
func (b *block) readEvents(n int, base events.Micros) []events.Event {
	if len(b.unusedEvents) < n {
		// The last slab of a block has only as many events as are left.
		b.unusedEvents = make([]events.Event, max(n, min(slabEvents, len(b.forms)-b.nextEvent)))
	}
	evs := b.unusedEvents[:n:n] // an append to them must not overwrite those of the next envelope
	b.unusedEvents = b.unusedEvents[n:]

	slot := uint32(0)
	for i := range evs {
		ev := &evs[i]
		form := b.forms[b.nextEvent]
		slot += b.skips[b.nextEvent]
		b.nextEvent++

		ev.Kind, ev.Settings = events.ReplaceFormerKind(numberOfForm(form))
		ev.Seq = b.seq
		ev.Slot = uint16(slot)
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

// readTimeAndOffset reads the time of an event if it is stored, and the offset of a backfilled
// event in its import.
func (b *block) readTimeAndOffset(ev *events.Event, form uint8) {
	if form&formHasTime != 0 {
		b.lastStoredTime += events.Micros(unzigzag(b.times[0]))
		ev.Time = b.lastStoredTime
		b.times = b.times[1:]
	}
	if form&formBackfill != 0 {
		ev.Backfill = true
		b.lastStoredOffset += uint64(unzigzag(b.offsets[0]))
		ev.Offset = b.lastStoredOffset
		b.offsets = b.offsets[1:]
	}
}

// readRareFields reads the fields that few kinds have.
func (b *block) readRareFields(ev *events.Event, form uint8, fields events.FieldSet) {
	if fields&hasSource != 0 {
		ev.Source, b.source = b.names[b.source[0]], b.source[1:]
	}
	if fields&hasBoard != 0 {
		ev.Board, b.board = b.names[b.board[0]], b.board[1:]
	}
	if fields&hasGroup != 0 {
		ev.Group, b.board = b.names[b.board[0]], b.board[1:]
	}
	if fields&hasPin != 0 {
		ev.Pin, b.pin = b.items[b.pin[0]], b.pin[1:]
		if form&formItemIsPin != 0 && ev.Kind != events.PinDeleted {
			ev.Item = ev.Pin
		}
	}
	if fields&hasItems != 0 {
		n := b.servedCounts[0]
		b.servedCounts = b.servedCounts[1:]
		ev.Items = make([]string, n)
		for i, ref := range b.servedItems[:n] {
			ev.Items[i] = b.items[ref]
		}
		b.servedItems = b.servedItems[n:]
	}
	if fields&hasRepin != 0 {
		ev.RepinUser, b.repinUser = b.users[b.repinUser[0]], b.repinUser[1:]
		ev.RepinPin, b.repinPin = b.items[b.repinPin[0]], b.repinPin[1:]
	}
	if fields&hasReaction != 0 && len(b.reactionKind) > 0 {
		ev.Reaction, b.reactionKind = b.names[b.reactionKind[0]], b.reactionKind[1:]
		ev.RepinUser, b.reactionPinOwner = b.users[b.reactionPinOwner[0]], b.reactionPinOwner[1:]
		ev.RepinPin, b.reactionPin = b.items[b.reactionPin[0]], b.reactionPin[1:]
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
	if fields&hasSettings != 0 {
		ev.Settings, b.score = events.FollowSettings(b.score[0])&events.AllFollowSettings, b.score[1:]
	}
	if fields&hasUntil != 0 {
		ev.Until, b.score = ev.Time+events.Micros(unzigzag(b.score[0])), b.score[1:]
	}
	ev.FillDerivedFields()
}

// readRejects reads the n rejects of an envelope.
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

	b.rejectSlots = b.rejectSlots[n:]
	b.rejectReasons = b.rejectReasons[n:]
	b.rejectFields = b.rejectFields[n:]
	b.rejectMessages = b.rejectMessages[n:]
	b.rejectDatas = b.rejectDatas[n:]
	return rejects
}
