package build

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/s2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// scatterFile holds the events of a build by partition. Each partition has a buffer of encoded
// events in memory. When the buffer is full, the scatterFile compresses it and appends it as a
// block to a file, which all partitions share. First one goroutine adds all events and calls
// finish. Then any number of goroutines may call eachEvent. A [Sample] calls eachEvent earlier,
// between two calls of addEvent, after it has called waitEncoded.
type scatterFile struct {
	fs   store.FS
	name string
	// out is the file while it is open for writing, or else nil. eachEvent opens the file anew.
	out vfs.File
	// size is how many bytes of the file have blocks, from its start. The next block is written
	// there. In a build that continues, the file may be longer: an earlier process has then written
	// blocks that it did not save (see save.go), and the next blocks overwrite these.
	size int64
	// parts has the events of each partition, by the number of the partition.
	parts [events.NumPartitions]partitionEvents
	// packed is memory in which blocks are read and compressed. Each block reuses it.
	packed []byte

	// encodeInBackground is set if another goroutine encodes events while the caller adds more.
	encodeInBackground bool
	// encoding waits for this goroutine. While it runs, only it may use size, parts, packed and
	// encodingErr, and write to out.
	encoding sync.WaitGroup
	// encodingErr is the error with which an encoding goroutine has failed. No batch is encoded
	// after that.
	encodingErr error
	// batch has the events that were added last and that no goroutine encodes yet. spare is the
	// batch before it, which is being encoded or is already encoded. When batch is full, the two
	// change places, so that the memory is reused. Both are empty if encodeInBackground is not set.
	batch, spare []scatteredEvent
}

// scatteredEvent is an event together with one of the partitions that it goes to.
type scatteredEvent struct {
	ev *events.Event
	// logTime is the log time at the end of the event's envelope.
	logTime   events.Micros
	partition uint8
}

// batchEvents is the number of events that addEvent collects before a goroutine encodes them.
const batchEvents = 1 << 13

// partitionEvents has the events of one partition.
type partitionEvents struct {
	// buf has the encoded events that are not in a block yet.
	buf []byte
	// last has the numbers of the last event in buf. It is zero if buf is empty.
	last deltaBase
	// blocks are the blocks in the file, in the order of the log.
	blocks []block
	// rawBytes is the size of all events of the partition, those in blocks and those in buf, in
	// encoded bytes before compression. eventCount is the number of these events, and
	// eventsInBlocks is the number of those in blocks.
	rawBytes, eventCount, eventsInBlocks int64
}

// rawBytes returns the size of the events of all partitions, in encoded bytes before compression.
func (s *scatterFile) rawBytes() (all int64) {
	for i := range s.parts {
		all += s.parts[i].rawBytes
	}
	return all
}

// deltaBase has those numbers of an event that the next event in the block is encoded relative to.
// The encoding has only the differences, because these are small and take few bytes. The first
// event of a block is encoded relative to zeros, so that each block can be decoded without the
// others.
type deltaBase struct {
	seq           uint64
	time, logTime events.Micros
}

// block says where one block is in the file. length includes the head of the block. Both numbers
// are in bytes.
type block struct {
	offset int64
	length int32
}

// blockHeadBytes is the size of the head of a block. The head has these numbers, in big endian: a
// CRC-32C of everything in the block that follows the CRC (4 bytes), the length of the events after
// compression (4 bytes), their number (4 bytes), and the partition (1 byte). The compressed events
// follow the head. eachEvent finds blocks by the offsets in memory. Only readBlocks, which reads a
// file that an earlier process has saved, needs the length, the number and the partition.
const blockHeadBytes = 4 + 4 + 4 + 1

// maxBlockBytes is larger than any block. The largest block has almost blockBytes of events and
// then one more event, which is about as large as an envelope may be. readBlocks allocates at most
// maxBlockBytes for a block, even if the length in its head is damaged.
const maxBlockBytes = 4 * events.MaxEnvelopeBytes

// castagnoli is the table of the CRC-32C, for blocks and for the files of save.go.
var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant that is computed

// checkBlock returns errScattered if the checksum of a block is wrong. packed is the whole block,
// and must have at least the size of a head.
func checkBlock(packed []byte) error {
	if binary.BigEndian.Uint32(packed) != crc32.Checksum(packed[4:], castagnoli) {
		return errScattered
	}
	return nil
}

// blockBytes is the size at which the buffer of a partition is full and becomes a block, in bytes
// before compression. An event is never divided, so a block may have more bytes.
const blockBytes = 32 << 10

// openScatterFile opens the file with this name for adding events, and creates the file if it does
// not exist. size is how many bytes of the file an earlier process has saved. It is 0 in a new
// build. openScatterFile reads the blocks in these bytes, and fails with errScattered if they are
// not whole blocks or if one is damaged.
func openScatterFile(fs store.FS, name string, encodeInBackground bool, size int64) (*scatterFile, error) {
	out, err := fs.OpenReadWrite(name, "build")
	if err != nil {
		return nil, err
	}
	s := &scatterFile{fs: fs, name: name, out: out, encodeInBackground: encodeInBackground}
	if err := s.readBlocks(size); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return s, nil
}

// readBlocks reads the first size bytes of the file and adds their blocks to those of the
// partitions. It checks each block, but does not decompress the events.
func (s *scatterFile) readBlocks(size int64) error {
	in := bufio.NewReaderSize(io.NewSectionReader(s.out, 0, size), 1<<20)
	for s.size < size {
		head, err := in.Peek(blockHeadBytes)
		if err != nil {
			return fmt.Errorf("%w: %w", errScattered, err)
		}
		length := blockHeadBytes + int64(binary.BigEndian.Uint32(head[4:]))
		if length > min(size-s.size, maxBlockBytes) {
			return errScattered
		}
		s.packed = slices.Grow(s.packed[:0], int(length))[:length]
		if _, err := io.ReadFull(in, s.packed); err != nil {
			return fmt.Errorf("%w: %w", errScattered, err)
		}
		if err := checkBlock(s.packed); err != nil {
			return err
		}
		raw, err := s2.DecodedLen(s.packed[blockHeadBytes:])
		if err != nil {
			return fmt.Errorf("%w: %w", errScattered, err)
		}

		partition := s.packed[12]
		p := &s.parts[partition]
		p.blocks = append(p.blocks, block{s.size, int32(length)})
		p.rawBytes += int64(raw)
		p.eventCount += int64(binary.BigEndian.Uint32(s.packed[8:]))
		p.eventsInBlocks = p.eventCount
		s.size += length
	}
	return nil
}

// addEvent adds an event. The event must not change until waitEncoded has returned, because it may
// be encoded only then. An error may be that of an event that was added earlier.
func (s *scatterFile) addEvent(d scatteredEvent) error {
	if !s.encodeInBackground {
		return s.encode(&d)
	}
	s.batch = append(s.batch, d)
	if len(s.batch) < batchEvents {
		return nil
	}
	return s.encodeBatch()
}

// encodeBatch waits until the batch before is encoded. Then it starts a goroutine that encodes the
// present batch, and begins a new, empty batch. It returns the error of the batch before, if that
// has failed; then it starts nothing.
func (s *scatterFile) encodeBatch() error {
	s.encoding.Wait()
	if s.encodingErr != nil {
		return s.encodingErr
	}

	// The batch before is encoded now, so the new batch can reuse its memory.
	batch := s.batch
	s.batch = s.spare[:0]
	s.spare = batch
	s.encoding.Go(func() {
		for i := range batch {
			if s.encodingErr = s.encode(&batch[i]); s.encodingErr != nil {
				return
			}
		}
	})
	return nil
}

// waitEncoded encodes all events that were added, and returns when this is done. It must be called
// after the last addEvent and before anything reads parts or size or calls eachEvent.
func (s *scatterFile) waitEncoded() error {
	if err := s.encodeBatch(); err != nil {
		return err
	}
	s.encoding.Wait()
	return s.encodingErr
}

// encode appends an event to the buffer of its partition. It writes the buffer to the file if it is
// full then.
func (s *scatterFile) encode(d *scatteredEvent) error {
	p := &s.parts[d.partition]
	n := len(p.buf)
	p.buf = appendEvent(p.buf, d.ev, d.logTime, &p.last)
	p.rawBytes += int64(len(p.buf) - n)
	p.eventCount++
	if len(p.buf) < blockBytes {
		return nil
	}
	return s.flushPartition(d.partition)
}

// flushPartition writes the buffer of a partition to the file, as a block, and empties the buffer.
func (s *scatterFile) flushPartition(partition uint8) error {
	p := &s.parts[partition]
	need := blockHeadBytes + s2.MaxEncodedLen(len(p.buf))
	s.packed = slices.Grow(s.packed[:0], need)[:need]
	data := s2.Encode(s.packed[blockHeadBytes:], p.buf) // uses the memory of s.packed
	packed := s.packed[:blockHeadBytes+len(data)]
	binary.BigEndian.PutUint32(packed[4:], uint32(len(data)))
	binary.BigEndian.PutUint32(packed[8:], uint32(p.eventCount-p.eventsInBlocks))
	packed[12] = partition
	binary.BigEndian.PutUint32(packed, crc32.Checksum(packed[4:], castagnoli))

	if _, err := s.out.WriteAt(packed, s.size); err != nil {
		return err
	}
	p.blocks = append(p.blocks, block{s.size, int32(len(packed))})
	s.size += int64(len(packed))
	p.buf = p.buf[:0]
	p.last = deltaBase{}
	p.eventsInBlocks = p.eventCount
	return nil
}

// flush writes the buffers of all partitions to the file, so that all events that were added are in
// it. flush does not sync the file. More events may be added afterwards.
func (s *scatterFile) flush() error {
	if err := s.waitEncoded(); err != nil {
		return err
	}
	for i := range s.parts {
		if len(s.parts[i].buf) > 0 {
			if err := s.flushPartition(uint8(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish ends the adding of events, and closes the file. If a partition has blocks, finish writes
// its last events to the file as one more block and frees its buffer. If a partition has no block,
// all its events stay in its buffer in memory, where eachEvent finds them.
func (s *scatterFile) finish() error {
	if err := s.waitEncoded(); err != nil {
		return err
	}
	for i := range s.parts {
		p := &s.parts[i]
		if len(p.blocks) == 0 {
			continue
		}
		if len(p.buf) > 0 {
			if err := s.flushPartition(uint8(i)); err != nil {
				return err
			}
		}
		p.buf = nil
	}
	return s.close()
}

// close closes the file, unless it is closed already. It does not write the events that are still
// in buffers or in the batch.
func (s *scatterFile) close() error {
	s.encoding.Wait() // the goroutine that encodes may still write to the file
	if s.out == nil {
		return nil
	}
	err := s.out.Close()
	s.out = nil
	return err
}

// eachEvent calls do with the events of a partition, in the order of the log, until do returns an
// error. Before finish or flush, eachEvent leaves out events: if the partition has blocks, it reads
// only the blocks, and not the events in the buffer. The next event overwrites *ev, so do must not
// keep the pointer. It may keep what the event refers to, such as strings. But all strings of a
// block share memory, so one string keeps the memory of all.
func (s *scatterFile) eachEvent(partition uint8, do func(ev *events.Event, logTime events.Micros) error) (err error) {
	p := &s.parts[partition]
	if len(p.blocks) == 0 {
		return decodeEvents(p.buf, do)
	}

	f, err := s.fs.Open(s.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	var packed, raw []byte // reused by each block
	for _, b := range p.blocks {
		packed = append(packed[:0], make([]byte, b.length)...)
		if _, err := f.ReadAt(packed, b.offset); err != nil {
			return fmt.Errorf("read events of partition %d: %w", partition, err)
		}
		if err := checkBlock(packed); err != nil {
			return fmt.Errorf("read events of partition %d: %w", partition, err)
		}
		if raw, err = s2.Decode(raw[:cap(raw)], packed[blockHeadBytes:]); err != nil {
			return fmt.Errorf("read events of partition %d: %w", partition, err)
		}
		if err := decodeEvents(raw, do); err != nil {
			return err
		}
	}
	return nil
}

// isBackfill is the bit that is set in the first byte of an encoded backfill. The other bits of
// this byte are the kind. They are enough, because all kinds are below 64, as [events.KindSet]
// needs.
//
// After this byte, an encoded event has its sequence, slot, time and log time as varints. All of
// these but the slot are differences from the event before in the block. Then come the fields of
// the kind and, for a backfill, its source. Offset and event id are left out, because they only
// decide whether an event counts, and this is decided before the event is scattered. The field
// Encoded is left out, too, because readEvent derives it from the other fields. A change of this
// encoding needs another savedVersion, because a build may continue with the file of an earlier
// program.
const isBackfill = 0x80

// fieldsOf returns the fields of an event that follow the numbers in its encoding. It reads only
// Kind and Backfill, so readEvent can call it before the other fields are decoded.
func fieldsOf(ev *events.Event) events.FieldSet {
	fields := ev.Kind.Fields()
	if ev.Backfill {
		fields |= 1 << events.FieldSource
	}
	return fields
}

// appendEvent appends an encoded event to dst and returns the result. It encodes the event relative
// to last, and then sets last to the numbers of this event.
func appendEvent(dst []byte, ev *events.Event, logTime events.Micros, last *deltaBase) []byte {
	head := byte(ev.Kind)
	if ev.Backfill {
		head |= isBackfill
	}
	dst = append(dst, head)
	dst = binary.AppendUvarint(dst, ev.Seq-last.seq)
	dst = binary.AppendUvarint(dst, uint64(ev.Slot))
	dst = binary.AppendVarint(dst, int64(ev.Time-last.time))
	dst = binary.AppendVarint(dst, int64(logTime-last.logTime))
	*last = deltaBase{ev.Seq, ev.Time, logTime}

	for f := range fieldsOf(ev).All() {
		switch f {
		case events.FieldItems:
			dst = binary.AppendUvarint(dst, uint64(len(ev.Items)))
			for _, item := range ev.Items {
				dst = appendText(dst, item)
			}
		case events.FieldAttributes:
			dst = append(binary.AppendUvarint(dst, uint64(len(ev.Attributes))), ev.Attributes...)
		case events.FieldScore:
			dst = binary.AppendVarint(dst, ev.Score)
		case events.FieldRead:
			dst = binary.AppendVarint(dst, int64(ev.Read))
		case events.FieldSettings:
			dst = append(dst, byte(ev.Settings))
		case events.FieldUntil:
			dst = binary.AppendVarint(dst, int64(ev.Until))
		default:
			dst = appendText(dst, *ev.TextField(f))
		}
	}
	return dst
}

// appendText appends the length of a string, as a varint, and the string.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// errScattered says that a block in the file, or its end, is not as flushPartition has written it.
var errScattered = errors.New("build: the file of scattered events is damaged")

// eventDecoder decodes the events that appendEvent has encoded. Its methods return no errors. After
// one has failed, failed is set and all of them return zero values, so decodeEvents checks failed
// only once per event.
type eventDecoder struct {
	// raw has the encoded events, uncompressed and without a head. text is a copy of raw as a
	// string. All decoded strings are parts of text, so that they need no memory of their own.
	raw  []byte
	text string
	// pos is the index of the next byte to read, in raw and in text.
	pos    int
	failed bool
}

// fail sets failed and moves pos to the end of raw. So whatever is read later is zero or empty.
func (c *eventDecoder) fail() {
	c.failed = true
	c.pos = len(c.raw)
}

func (c *eventDecoder) readUvarint() uint64 {
	v, n := binary.Uvarint(c.raw[c.pos:])
	if n <= 0 {
		c.fail()
		return 0
	}
	c.pos += n
	return v
}

func (c *eventDecoder) readVarint() int64 {
	v, n := binary.Varint(c.raw[c.pos:])
	if n <= 0 {
		c.fail()
		return 0
	}
	c.pos += n
	return v
}

func (c *eventDecoder) readText() string {
	n := c.readUvarint()
	if n > uint64(len(c.raw)-c.pos) {
		c.fail()
		return ""
	}
	c.pos += int(n)
	return c.text[c.pos-int(n) : c.pos]
}

// decodeEvents calls do with the events that are encoded in raw, until do returns an error. raw is
// the content of one block after decompression, or of a buffer. The event that do gets is valid
// only until do returns (see eachEvent).
func decodeEvents(raw []byte, do func(ev *events.Event, logTime events.Micros) error) error {
	c := eventDecoder{raw: raw, text: string(raw)}
	var last deltaBase
	var ev events.Event
	for c.pos < len(raw) {
		ev = events.Event{}
		c.readEvent(&ev, &last)
		if c.failed {
			return errScattered
		}
		if err := do(&ev, last.logTime); err != nil {
			return err
		}
	}
	return nil
}

// readEvent decodes one event into ev, which must be zero. It decodes the event relative to last,
// and then sets last to the numbers of this event. If it sets failed, ev and last are unusable.
func (c *eventDecoder) readEvent(ev *events.Event, last *deltaBase) {
	head := c.raw[c.pos]
	c.pos++
	ev.Kind = events.Kind(head &^ isBackfill)
	ev.Backfill = head&isBackfill != 0
	if !ev.Kind.Valid() {
		c.fail()
		return
	}

	last.seq += c.readUvarint()
	ev.Seq = last.seq
	ev.Slot = uint16(c.readUvarint())
	last.time += events.Micros(c.readVarint())
	last.logTime += events.Micros(c.readVarint())
	ev.Time = last.time

	for f := range fieldsOf(ev).All() {
		switch f {
		case events.FieldItems:
			for n := c.readUvarint(); n > 0 && !c.failed; n-- {
				ev.Items = append(ev.Items, c.readText())
			}
		case events.FieldAttributes:
			if data := c.readText(); data != "" {
				ev.Attributes = []byte(data)
			}
		case events.FieldScore:
			ev.Score = c.readVarint()
		case events.FieldRead:
			ev.Read = events.Micros(c.readVarint())
		case events.FieldSettings:
			// appendEvent writes one byte. It is less than 128, so readUvarint reads it as it is.
			ev.Settings = events.FollowSettings(c.readUvarint())
		case events.FieldUntil:
			ev.Until = events.Micros(c.readVarint())
		default:
			*ev.TextField(f) = c.readText()
		}
	}
	ev.FillDerivedFields()
}
