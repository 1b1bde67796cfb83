package archive

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// The fields that have columns. A re-pinned pin has two columns, of its owner and of its id.
const (
	hasUser       events.FieldSet = 1 << events.FieldUser
	hasPeer       events.FieldSet = 1 << events.FieldPeer
	hasBoard      events.FieldSet = 1 << events.FieldBoard
	hasPin        events.FieldSet = 1 << events.FieldPin
	hasItem       events.FieldSet = 1 << events.FieldItem
	hasItems      events.FieldSet = 1 << events.FieldItems
	hasRepin      events.FieldSet = 1 << events.FieldRepinUser
	hasTitle      events.FieldSet = 1 << events.FieldTitle
	hasAttributes events.FieldSet = 1 << events.FieldAttributes
	// hasScore and hasRead share a column. Of a read marker it holds the event's time minus the marker, which is a small number.
	hasScore events.FieldSet = 1 << events.FieldScore
	hasRead  events.FieldSet = 1 << events.FieldRead
	// hasSource is of kinds that are not backfilled; a backfill has a source whatever its kind.
	hasSource events.FieldSet = 1 << events.FieldSource
)

// The form of an event is one byte: its kind, and flags that say which columns have a value for it.
const (
	formKindMask  = 0x1f // the lower bits of the kind: those of 32 to 41 are free, because kinds begin at 10
	formBackfill  = 0x20
	formHasTime   = 0x40 // the time is in a column, because it does not follow from the slot
	formItemIsPin = 0x80 // the item is the pin
)

// fieldsOfForm says which fields an event of a form has columns for. Forms of unknown kinds have none.
//
//nolint:gochecknoglobals // computed once from the kinds, and immutable from then on
var fieldsByForm = func() (fields [256]events.FieldSet) {
	for i := range fields {
		form := uint8(i)
		fields[form] = kindOfForm(form).Fields()
		if form&formItemIsPin != 0 {
			fields[form] &^= hasItem
		}
		if form&formBackfill != 0 {
			fields[form] |= hasSource
		}
	}
	return fields
}()

// kindOf returns the kind of a form.
func kindOfForm(form uint8) events.Kind {
	kind := events.Kind(form & formKindMask)
	if kind < events.UserFollowed {
		kind += formKindMask + 1
	}
	return kind
}

// maxSpan is the largest distance, in microseconds, from the time of slot 0 to the envelope's last time for which the times of the
// events are computed from their slots instead of stored.
const maxTimeSpan = 1 << 16

// blockBuilder collects records in columns. The zero value is not ready.
type blockBuilder struct {
	firstSeq  uint64
	lastSeq   uint64
	startTime events.Micros // the last time of the first record
	lastTime  events.Micros

	records struct{ seqs, times, spans, counts, bytes, repeats, rejects []uint64 }

	forms, skips, times, offsets                   []uint64
	lastStoredTime                                 events.Micros // the last time that was stored; the column has differences
	lastStoredOffset                               uint64        // the last offset that was stored
	users, items, names                            *dictionaryBuilder
	user, peer, board, pin, item                   []uint64
	servedCounts, servedItems, repinUser, repinPin []uint64
	source, score                                  []uint64
	titles, attributes                             []string
	rejectSlots, rejectReasons                     []uint64
	rejectFields, rejectMessages, rejectDatas      []string
	estimatedBytes                                 int
}

func newBlockBuilder() *blockBuilder {
	return &blockBuilder{users: newDictionaryBuilder(), items: newDictionaryBuilder(), names: newDictionaryBuilder()}
}

func (b *blockBuilder) isEmpty() bool { return len(b.records.seqs) == 0 }

// size estimates the bytes of the columns before compression.
func (b *blockBuilder) estimatedSize() int {
	return b.estimatedBytes + b.users.estimatedBytes + b.items.estimatedBytes + b.names.estimatedBytes
}

// fits reports whether the record may be added to what is there.
func (b *blockBuilder) fits(r *record) bool {
	return b.isEmpty() || b.estimatedSize() < blockTargetBytes && len(b.records.seqs) < maxBlockRecords &&
		len(b.forms)+len(r.events) <= maxBlockEvents
}

// add appends a record. Its sequence and last time must not be below those of the previous record. It fails with [ErrOrder] if the
// slots do not rise.
func (b *blockBuilder) addRecord(r *record) error {
	if b.isEmpty() {
		b.firstSeq, b.lastSeq, b.startTime, b.lastTime, b.lastStoredTime = r.seq, r.seq, r.lastTime, r.lastTime, r.lastTime
	}
	base, span := baseAndSpan(r)
	c := &b.records
	c.seqs = append(c.seqs, r.seq-b.lastSeq)
	c.times = append(c.times, uint64(r.lastTime-b.lastTime))
	c.spans = append(c.spans, span)
	c.counts = append(c.counts, uint64(len(r.events)))
	c.bytes = append(c.bytes, uint64(r.bytes))
	c.repeats = append(c.repeats, uint64(r.repeats))
	c.rejects = append(c.rejects, uint64(len(r.rejects)))
	b.lastSeq, b.lastTime = r.seq, r.lastTime
	b.estimatedBytes += 16 + 8*len(r.events)
	next := 0
	for i := range r.events {
		ev := &r.events[i]
		if int(ev.Slot) < next || !ev.Kind.Valid() {
			return fmt.Errorf("%w: sequence %d has slot %d of kind %v after slot %d", ErrOrder, r.seq, ev.Slot, ev.Kind, next-1)
		}
		b.skips = append(b.skips, uint64(int(ev.Slot)-next))
		next = int(ev.Slot) + 1
		b.addEvent(ev, span > 0 && ev.Time == base+events.Micros(ev.Slot))
	}
	for i := range r.rejects {
		j := &r.rejects[i]
		b.rejectSlots = append(b.rejectSlots, zigzag(int64(j.Slot)))
		b.rejectReasons = append(b.rejectReasons, zigzag(int64(j.Rejection.Reason)))
		b.rejectFields = append(b.rejectFields, j.Rejection.Field)
		b.rejectMessages = append(b.rejectMessages, j.Rejection.Message)
		b.rejectDatas = append(b.rejectDatas, string(j.Data))
		b.estimatedBytes += 48 + len(j.Rejection.Field) + len(j.Rejection.Message) + len(j.Data)
	}
	return nil
}

// baseOf returns the time of slot 0, computed from a live event, and the number of microseconds from it to the last time given,
// both ends included. The span is 0 if the envelope has no live event or the span exceeds maxSpan: times are then stored.
func baseAndSpan(r *record) (base events.Micros, span uint64) {
	for i := range r.events {
		if ev := &r.events[i]; !ev.Backfill {
			base = ev.Time - events.Micros(ev.Slot)
			if n := r.lastTime - base + 1; n > 0 && n <= maxTimeSpan {
				return base, uint64(n)
			}
			return 0, 0
		}
	}
	return 0, 0
}

func (b *blockBuilder) addEvent(ev *events.Event, follows bool) {
	form := uint8(ev.Kind & formKindMask)
	if ev.Backfill {
		form |= formBackfill
		b.offsets = append(b.offsets, zigzag(int64(ev.Offset-b.lastStoredOffset)))
		b.lastStoredOffset = ev.Offset
	}
	if ev.Backfill || !follows {
		form |= formHasTime
		b.times = append(b.times, zigzag(int64(ev.Time-b.lastStoredTime)))
		b.lastStoredTime = ev.Time
		b.estimatedBytes += 8
	}
	if ev.Item == ev.Pin && fieldsByForm[form]&(hasPin|hasItem) == hasPin|hasItem {
		form |= formItemIsPin
	}
	b.forms = append(b.forms, uint64(form))
	fields := fieldsByForm[form]
	if fields&hasSource != 0 {
		b.source = append(b.source, b.names.numberOf(ev.Source))
	}
	if fields&hasUser != 0 {
		b.user = append(b.user, b.users.numberOf(ev.User))
	}
	if fields&hasPeer != 0 {
		b.peer = append(b.peer, b.users.numberOf(ev.Peer))
	}
	if fields&hasBoard != 0 {
		b.board = append(b.board, b.names.numberOf(ev.Board))
	}
	if fields&hasPin != 0 {
		b.pin = append(b.pin, b.items.numberOf(ev.Pin))
	}
	if fields&hasItem != 0 {
		b.item = append(b.item, b.items.numberOf(ev.Item))
	}
	b.addRareFields(ev, fields)
}

// addContent appends the fields that few kinds have, apart from the hot path.
func (b *blockBuilder) addRareFields(ev *events.Event, fields events.FieldSet) {
	if fields&hasItems != 0 {
		b.servedCounts = append(b.servedCounts, uint64(len(ev.Items)))
		for _, item := range ev.Items {
			b.servedItems = append(b.servedItems, b.items.numberOf(item))
		}
		b.estimatedBytes += 4 * len(ev.Items)
	}
	if fields&hasRepin != 0 {
		b.repinUser = append(b.repinUser, b.users.numberOf(ev.RepinUser))
		b.repinPin = append(b.repinPin, b.items.numberOf(ev.RepinPin))
	}
	if fields&hasTitle != 0 {
		b.titles = append(b.titles, ev.Title)
		b.estimatedBytes += len(ev.Title)
	}
	if fields&hasAttributes != 0 {
		b.attributes = append(b.attributes, string(ev.Attributes))
		b.estimatedBytes += len(ev.Attributes)
	}
	if fields&hasRead != 0 {
		b.score = append(b.score, zigzag(int64(ev.Time-ev.Read)))
	}
	if fields&hasScore != 0 {
		b.score = append(b.score, zigzag(ev.Score))
	}
}

// append appends the encoded block. It overwrites the columns, so the builder must not be used afterwards.
func (b *blockBuilder) appendEncoded(dst []byte) []byte {
	c := &b.records
	for _, n := range []int{len(c.seqs), len(b.forms), len(b.servedItems), len(b.rejectSlots)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.AppendUvarint(dst, b.firstSeq)
	dst = binary.AppendVarint(dst, int64(b.startTime))
	for _, column := range [][]uint64{c.seqs, c.times, c.spans, c.counts, c.bytes, c.repeats, c.rejects} {
		dst = appendColumn(dst, column)
	}
	var indexes [3][]uint32
	for i, d := range []*dictionaryBuilder{b.users, b.items, b.names} {
		dst, indexes[i] = d.appendSorted(dst)
	}
	for _, column := range [][]uint64{b.forms, b.skips, b.times, b.offsets, b.servedCounts, b.score} {
		dst = appendColumn(dst, column)
	}
	for _, r := range []struct {
		indexes []uint32
		columns [][]uint64
	}{
		{indexes[0], [][]uint64{b.user, b.peer, b.repinUser}},
		{indexes[1], [][]uint64{b.pin, b.item, b.servedItems, b.repinPin}},
		{indexes[2], [][]uint64{b.board, b.source}},
	} {
		for _, column := range r.columns {
			for i, n := range column {
				column[i] = uint64(r.indexes[n])
			}
			dst = appendColumn(dst, column)
		}
	}
	dst = appendTexts(appendTexts(dst, b.titles), b.attributes)
	dst = appendColumn(appendColumn(dst, b.rejectSlots), b.rejectReasons)
	return appendTexts(appendTexts(appendTexts(dst, b.rejectFields), b.rejectMessages), b.rejectDatas)
}
