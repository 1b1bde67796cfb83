package archive

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// The fields that have columns. A re-pinned pin has two columns: the user who owned it, and its id.
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
	// hasScore and hasRead share a column. For a read marker the column holds the time of the event
	// minus the marker, which is a small number.
	hasScore events.FieldSet = 1 << events.FieldScore
	hasRead  events.FieldSet = 1 << events.FieldRead
	// hasSettings and hasUntil share the column of hasScore, too. For a mute the column holds its
	// end minus the time of the event.
	hasSettings events.FieldSet = 1 << events.FieldSettings
	hasUntil    events.FieldSet = 1 << events.FieldUntil
	// hasSource is set for the kinds that always have a source. Backfilled events of all kinds have
	// one, too: see fieldsByForm.
	hasSource events.FieldSet = 1 << events.FieldSource
	// hasReaction is set for reactions and their ends. Their kind and their pin are in columns of
	// their own, which blocks from before do not have: see groupReactions.
	hasReaction events.FieldSet = 1 << events.FieldReaction
	// hasGroup shares the column of hasBoard. No kind has both.
	hasGroup events.FieldSet = 1 << events.FieldGroup
)

// A block ends with groups of columns that were added to the format later. Each group begins with
// its number, and is left out if all its values are empty. So blocks that were written before still
// read, as if the values were empty.
const (
	// groupReactions is three columns with a value per reaction: the kind, the owner of the pin,
	// and the id of the pin.
	groupReactions = 1
)

// The form of an event is one byte: its kind, and flags that say which columns have a value for it.
const (
	// formKindMask selects the lower five bits of the kind. Kinds 32 to 41 use the values 0 to 9,
	// which are free because kinds begin at 10.
	formKindMask  = 0x1f
	formBackfill  = 0x20
	formHasTime   = 0x40 // the time is in a column, because it does not follow from the slot
	formItemIsPin = 0x80 // the item is the pin
	// formHasUntil uses the same bit for mutes, which have no pin. Only with it does a mute have a
	// value in a column, because the archives of earlier versions have mutes without one.
	formHasUntil = 0x80
	// formHasRepin uses the same bit for ends of pins, which have no item. Only with it does the
	// end of a pin name the pin that was re-pinned, because the archives of earlier versions have
	// ends of pins that name none.
	formHasRepin = 0x80
)

// fieldsByForm contains, for each form, the fields for which an event of the form has a value in a
// column. Forms of unknown kinds have none.
//
//nolint:gochecknoglobals // computed once from the kinds, and immutable from then on
var fieldsByForm = func() (fields [256]events.FieldSet) {
	for i := range fields {
		form := uint8(i)
		kind, _ := events.ReplaceFormerKind(numberOfForm(form))
		fields[form] = kind.Fields()
		if kind != numberOfForm(form) {
			fields[form] &^= hasSettings // what the event sets follows from the former kind
		}
		if form&formItemIsPin != 0 {
			fields[form] &^= hasItem
		}
		if kind == events.PinDeleted && form&formHasRepin == 0 {
			fields[form] &^= hasRepin
		}
		if fields[form]&hasReaction != 0 {
			fields[form] &^= hasRepin
		}
		if form&formHasUntil == 0 {
			fields[form] &^= hasUntil
		}
		if form&formBackfill != 0 {
			fields[form] |= hasSource
		}
	}
	return fields
}()

// numberOfForm returns the kind that the lower bits of a form stand for, which may be a former
// kind.
func numberOfForm(form uint8) events.Kind {
	kind := events.Kind(form & formKindMask)
	if kind < events.UserFollowed {
		kind += formKindMask + 1
	}
	return kind
}

// maxTimeSpan is the largest distance, in microseconds, from the time of slot 0 to the envelope's
// last time for which the times of the events are computed from their slots instead of stored.
const maxTimeSpan = 1 << 16

// blockBuilder collects the records of one block as columns of numbers and texts. Create it with
// newBlockBuilder.
//
// A column of references to ids holds the numbers that the dictionaryBuilder gave, until
// appendEncoded replaces them.
type blockBuilder struct {
	firstSeq  uint64
	lastSeq   uint64
	startTime events.Micros // the last time of the first record
	lastTime  events.Micros // the last time of the last record

	// records has one value per record in each column.
	records struct {
		seqs, times []uint64 // differences to the previous record
		spans       []uint64 // see baseAndSpan
		counts      []uint64 // number of events
		bytes       []uint64
		repeats     []uint64
		rejects     []uint64 // number of rejects
	}

	// forms and skips have one value per event. A skip is the number of empty slots before the
	// event.
	forms, skips []uint64

	// times and offsets have a value for the events that need one. Values are differences to the
	// previously stored value, zigzagged.
	times, offsets   []uint64
	lastStoredTime   events.Micros
	lastStoredOffset uint64

	// The dictionaries of the ids that occur in the block: of users, of items and pins, and of
	// boards and sources.
	users, items, names *dictionaryBuilder

	// Columns of fields. Each has a value per event that has the field, except servedItems, which
	// has servedCounts values per event.
	user, peer, board, pin, item []uint64
	servedCounts, servedItems    []uint64
	repinUser, repinPin          []uint64
	source, score                []uint64
	titles, attributes           []string
	// The columns of groupReactions. needsReactions is set if one of their values is not empty.
	reactionKind, reactionPinOwner, reactionPin []uint64
	needsReactions                              bool
	rejectSlots, rejectReasons                  []uint64
	rejectFields, rejectMessages                []string
	rejectDatas                                 []string

	// estimatedBytes is the approximate size of the columns before compression, without the
	// dictionaries.
	estimatedBytes int
}

// addReaction appends the kind and the pin of a reaction.
func (b *blockBuilder) addReaction(ev *events.Event) {
	b.reactionKind = append(b.reactionKind, b.names.numberOf(ev.Reaction))
	b.reactionPinOwner = append(b.reactionPinOwner, b.users.numberOf(ev.RepinUser))
	b.reactionPin = append(b.reactionPin, b.items.numberOf(ev.RepinPin))
	if ev.Reaction != "" || ev.RepinUser != "" {
		b.needsReactions = true
	}
}

// newBlockBuilder returns a builder of an empty block.
func newBlockBuilder() *blockBuilder {
	return &blockBuilder{users: newDictionaryBuilder(), items: newDictionaryBuilder(), names: newDictionaryBuilder()}
}

func (b *blockBuilder) isEmpty() bool { return len(b.records.seqs) == 0 }

// estimatedSize returns the approximate size of the columns and dictionaries in bytes, before
// compression.
func (b *blockBuilder) estimatedSize() int {
	return b.estimatedBytes + b.users.estimatedBytes + b.items.estimatedBytes + b.names.estimatedBytes
}

// fits reports whether the record may be added to this block. An empty block accepts every record.
func (b *blockBuilder) fits(r *record) bool {
	if b.isEmpty() {
		return true
	}
	hasRoomForEvents := len(b.forms)+len(r.events) <= maxBlockEvents
	return hasRoomForEvents && len(b.records.seqs) < maxBlockRecords && b.estimatedSize() < blockTargetBytes
}

// addRecord appends a record, whose sequence and last time must not be below those of the previous
// record. It fails with [ErrOrder] if the slots of its events do not rise or a kind is invalid.
func (b *blockBuilder) addRecord(r *record) error {
	if b.isEmpty() {
		b.firstSeq = r.seq
		b.lastSeq = r.seq
		b.startTime = r.lastTime
		b.lastTime = r.lastTime
		b.lastStoredTime = r.lastTime
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
	b.lastSeq = r.seq
	b.lastTime = r.lastTime
	b.estimatedBytes += 16 + 8*len(r.events) // typical sizes; the exact ones are known only when the block is encoded

	nextSlot := 0
	for i := range r.events {
		ev := &r.events[i]
		if int(ev.Slot) < nextSlot || !ev.Kind.Valid() {
			return fmt.Errorf("%w: sequence %d has slot %d of kind %v after slot %d", ErrOrder, r.seq, ev.Slot, ev.Kind, nextSlot-1)
		}
		b.skips = append(b.skips, uint64(int(ev.Slot)-nextSlot))
		nextSlot = int(ev.Slot) + 1
		timeFromSlot := span > 0 && ev.Time == base+events.Micros(ev.Slot)
		b.addEvent(ev, timeFromSlot)
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

// baseAndSpan returns the time of slot 0, computed from the first event that is not a backfill, and
// the number of microseconds from that time to the last time of the envelope, both included. The
// span is 0 if all events are backfills or the span would exceed maxTimeSpan; the times of the
// events must then be stored.
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

// addEvent appends the form and the fields of an event. timeFromSlot is true if the reader can
// compute the time from the slot.
func (b *blockBuilder) addEvent(ev *events.Event, timeFromSlot bool) {
	// The form tells the reader which columns have a value for the event, so it is complete before
	// any field is added.
	form := uint8(ev.Kind & formKindMask)
	if ev.Backfill {
		form |= formBackfill
		b.offsets = append(b.offsets, zigzag(int64(ev.Offset-b.lastStoredOffset)))
		b.lastStoredOffset = ev.Offset
	}
	if ev.Backfill || !timeFromSlot {
		form |= formHasTime
		b.times = append(b.times, zigzag(int64(ev.Time-b.lastStoredTime)))
		b.lastStoredTime = ev.Time
		b.estimatedBytes += 8
	}
	if ev.Item == ev.Pin && fieldsByForm[form]&(hasPin|hasItem) == hasPin|hasItem {
		form |= formItemIsPin
	}
	if ev.Until != 0 {
		form |= formHasUntil
	}
	if ev.Kind == events.PinDeleted && (ev.RepinUser != "" || ev.RepinPin != "") {
		form |= formHasRepin
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
	if fields&hasGroup != 0 {
		b.board = append(b.board, b.names.numberOf(ev.Group))
	}
	if fields&hasPin != 0 {
		b.pin = append(b.pin, b.items.numberOf(ev.Pin))
	}
	if fields&hasItem != 0 {
		b.item = append(b.item, b.items.numberOf(ev.Item))
	}
	b.addRareFields(ev, fields)
}

// addRareFields appends the fields that few kinds have. It is a function of its own to keep
// addEvent, which runs for every event, small.
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
	if fields&hasReaction != 0 {
		b.addReaction(ev)
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
	if fields&hasSettings != 0 {
		b.score = append(b.score, uint64(ev.Settings))
	}
	if fields&hasUntil != 0 {
		b.score = append(b.score, zigzag(int64(ev.Until-ev.Time)))
	}
}

// appendEncoded appends the encoded block. It overwrites the columns, so the builder must not be
// used afterwards.
//
// The order of the parts is the format: decodeBlock reads them in the same order.
func (b *blockBuilder) appendEncoded(dst []byte) []byte {
	// The lengths that the decoder cannot derive from other columns come first.
	c := &b.records
	for _, n := range []int{len(c.seqs), len(b.forms), len(b.servedItems), len(b.rejectSlots)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}

	dst = binary.AppendUvarint(dst, b.firstSeq)
	dst = binary.AppendVarint(dst, int64(b.startTime))
	for _, column := range [][]uint64{c.seqs, c.times, c.spans, c.counts, c.bytes, c.repeats, c.rejects} {
		dst = appendColumn(dst, column)
	}

	// The columns of references need the indexes of the sorted dictionaries, so these come first.
	var indexes [3][]uint32
	for i, d := range []*dictionaryBuilder{b.users, b.items, b.names} {
		dst, indexes[i] = d.appendSorted(dst)
	}

	for _, column := range [][]uint64{b.forms, b.skips, b.times, b.offsets, b.servedCounts, b.score} {
		dst = appendColumn(dst, column)
	}

	for _, references := range []struct {
		indexes []uint32
		columns [][]uint64
	}{
		{indexes[0], [][]uint64{b.user, b.peer, b.repinUser}},
		{indexes[1], [][]uint64{b.pin, b.item, b.servedItems, b.repinPin}},
		{indexes[2], [][]uint64{b.board, b.source}},
	} {
		for _, column := range references.columns {
			dst = appendReferences(dst, column, references.indexes)
		}
	}
	dst = appendTexts(dst, b.titles)
	dst = appendTexts(dst, b.attributes)

	dst = appendColumn(dst, b.rejectSlots)
	dst = appendColumn(dst, b.rejectReasons)
	dst = appendTexts(dst, b.rejectFields)
	dst = appendTexts(dst, b.rejectMessages)
	dst = appendTexts(dst, b.rejectDatas)

	if b.needsReactions {
		dst = binary.AppendUvarint(dst, groupReactions)
		dst = appendReferences(dst, b.reactionKind, indexes[2])
		dst = appendReferences(dst, b.reactionPinOwner, indexes[0])
		dst = appendReferences(dst, b.reactionPin, indexes[1])
	}
	return dst
}

// appendReferences appends a column of references to ids. It replaces the numbers of the ids by
// their indexes in the sorted dictionary.
func appendReferences(dst []byte, column []uint64, indexes []uint32) []byte {
	for i, n := range column {
		column[i] = uint64(indexes[n])
	}
	return appendColumn(dst, column)
}
