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

// scatterFile holds events by partition. Each partition has a buffer in memory. A full buffer is
// compressed and appended, as a block, to the one file of all partitions. Events are added by one
// goroutine first; then any number of goroutines may read, each a partition.
type scatterFile struct {
	fs   store.FS
	name string
	// out is the file while it is open for writing, or else nil.
	out vfs.File
	// size is how many bytes of the file have blocks. The file may be longer if it was saved
	// earlier than it was last written (see save.go); the next block replaces what follows.
	size  int64
	parts [events.NumPartitions]partitionEvents
	// packed is scratch memory for a block.
	packed []byte

	// encodeInBackground is set if another goroutine encodes events while more are added. Until
	// encoding is done, the fields above and encodingErr belong to that goroutine.
	encodeInBackground bool
	encoding           sync.WaitGroup
	// encodingErr is the error that ended the encoding.
	encodingErr error
	// batch has the last events that were added. spare is the memory of the batch before it, which
	// is being encoded.
	batch, spare []scatteredEvent
}

// scatteredEvent is an event that is delivered to one partition.
type scatteredEvent struct {
	ev        *events.Event
	logTime   events.Micros
	partition uint8
}

// batchEvents is the number of events in a batch.
const batchEvents = 1 << 13

// partitionEvents has the events of one partition.
type partitionEvents struct {
	// buf has the encoded events since the last block.
	buf []byte
	// last has the numbers of the last event in buf.
	last deltaBase
	// blocks are the blocks in the file, in the order of the log.
	blocks []block
	// rawBytes is the number of bytes of all events before compression, eventCount is the number of
	// events, and eventsInBlocks is how many of them are not in buf.
	rawBytes, eventCount, eventsInBlocks int64
}

// rawBytes returns the number of bytes of all events before compression.
func (s *scatterFile) rawBytes() (all int64) {
	for i := range s.parts {
		all += s.parts[i].rawBytes
	}
	return all
}

// deltaBase has the numbers of an event from which the next event is encoded: as differences, which
// are small. The first event of a block is encoded from zeros, so that a block can be decoded
// alone.
type deltaBase struct {
	seq           uint64
	time, logTime events.Micros
}

// block is where a block, with its head, is in the file: its offset and length, in bytes.
type block struct {
	offset int64
	length int32
}

// The head of a block has numbers in big endian: a CRC-32C of the rest of the block (4 bytes), the
// length of the events after compression (4 bytes), their number (4 bytes), and the partition (1
// byte). The compressed events follow. By the heads, readBlocks finds the blocks of a file that
// another process has begun.
const blockHeadBytes = 4 + 4 + 4 + 1

// maxBlockBytes is more than the largest block has, which is one with an event as large as an
// envelope may be. It keeps a damaged length from taking all memory.
const maxBlockBytes = 4 * events.MaxEnvelopeBytes

// castagnoli is the table of the checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant that is computed

// checkBlock checks the checksum of a block, which has at least a head.
func checkBlock(packed []byte) error {
	if binary.BigEndian.Uint32(packed) != crc32.Checksum(packed[4:], castagnoli) {
		return errScattered
	}
	return nil
}

// blockBytes is the size of a partition's buffer at which it becomes a block, in bytes before
// compression.
const blockBytes = 32 << 10

// openScatterFile creates a file, for a size of 0, or opens one of which the first size bytes were
// saved. It fails if these are not whole blocks.
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

// readBlocks adds the blocks in the first size bytes of the file to their partitions.
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

// addEvent adds an event, which must not change until waitEncoded has returned.
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

// encodeBatch begins to encode the batch in the background, once the batch before it is encoded,
// and begins a new batch.
func (s *scatterFile) encodeBatch() error {
	s.encoding.Wait()
	if s.encodingErr != nil {
		return s.encodingErr
	}

	// Reuse the memory of the batch before, which is encoded now.
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

// waitEncoded encodes all events that were added and waits for the end. It must be called before
// the fields are read.
func (s *scatterFile) waitEncoded() error {
	if err := s.encodeBatch(); err != nil {
		return err
	}
	s.encoding.Wait()
	return s.encodingErr
}

// encode appends an event to those of its partition.
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

// flushPartition writes the buffer of a partition to the file, as a block.
func (s *scatterFile) flushPartition(partition uint8) error {
	p := &s.parts[partition]
	need := blockHeadBytes + s2.MaxEncodedLen(len(p.buf))
	s.packed = slices.Grow(s.packed[:0], need)[:need]
	data := s2.Encode(s.packed[blockHeadBytes:], p.buf) // uses the memory of packed
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

// flush writes all events that were added to the file, without syncing it.
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

// finish ends the writing. Partitions that have blocks write their last events to the file. One
// that has never filled its buffer keeps it in memory.
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

// close closes the file unless it is closed already. Events that were added but are not flushed may
// be lost.
func (s *scatterFile) close() error {
	s.encoding.Wait() // it writes to the file
	if s.out == nil {
		return nil
	}
	err := s.out.Close()
	s.out = nil
	return err
}

// eachEvent calls do with the events of a partition, in the order of the log. The event is valid
// until do returns, but do may keep its strings.
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

// An encoded event is: the kind, with isBackfill for a backfill (1 byte); sequence, slot, time and
// log time as varints, all but the slot as differences from the event before; then the fields of
// the kind and, of a backfill, its source. Offset and event id are left out: they only decide
// whether an event is accepted, which happens before it is scattered. All kinds are below 64, as
// [events.KindSet] needs. Another encoding needs another savedVersion.
const isBackfill = 0x80

// fieldsOf returns the fields of an event that are encoded.
func fieldsOf(ev *events.Event) events.FieldSet {
	fields := ev.Kind.Fields()
	if ev.Backfill {
		fields |= 1 << events.FieldSource
	}
	return fields
}

// appendEvent appends an event, encoded from last, and sets last to the numbers of the event.
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

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// errScattered reports that a block does not have what flushPartition writes.
var errScattered = errors.New("build: the file of scattered events is damaged")

// eventDecoder decodes what appendEvent has written. After an error it returns only zero values, so
// the caller can check failed once per event.
type eventDecoder struct {
	// raw is the block, and text a copy of it whose memory all decoded strings share.
	raw  []byte
	text string
	// pos is the index in raw of the next byte to read.
	pos    int
	failed bool
}

// fail ends the decoding: all further values are zero.
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

// decodeEvents calls do with the events of a block.
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

// readEvent decodes one event into ev, which must be empty.
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
			ev.Settings = events.FollowSettings(c.readUvarint()) // less than 128, so it is one byte
		case events.FieldUntil:
			ev.Until = events.Micros(c.readVarint())
		default:
			*ev.TextField(f) = c.readText()
		}
	}
	ev.FillDerivedFields()
}
