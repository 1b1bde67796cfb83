package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

// A segment file consists of a header, blocks, a footer and a tail:
//
//	"SKEINSEG" version class             the header; version and class have a byte each
//	block…                               each as blockBuilder.appendEncoded wrote it
//	log first last envelopes events n    the footer; n is the number of blocks
//	  { length checksum first last envelopes events }…    n entries, one for each block
//	checksum length "SEGE"               the tail
//
// In the footer, log has 16 bytes, the checksum of a block is its xxh3-64 in 8 bytes, and all other
// numbers are unsigned varints. In the tail, checksum is the lower half of segmentChecksum in 8
// bytes, and length is the number of bytes of the footer, in 4 bytes. Numbers of a fixed width are
// big-endian.
const (
	segmentMagic   = "SKEINSEG"
	segmentVersion = 1
	headerLen      = len(segmentMagic) + 2
	tailMagic      = "SEGE"
	tailLen        = 8 + 4 + len(tailMagic)

	// footerGuess is how many bytes openSegment reads from the end of a segment before it knows the
	// length of the footer. In most segments they contain the whole footer and the tail, which
	// saves a request to a remote bucket.
	footerGuess = 32 << 10
	// maxFooterBytes and maxBlocks are the largest values that a reader accepts, so that damaged
	// bytes cannot make it allocate much memory. A footer of maxBlocks blocks is below
	// maxFooterBytes. The writer checks neither.
	maxFooterBytes = 16 << 20
	maxBlocks      = 1 << 18
)

// blockInfo is the entry of a block in the footer.
type blockInfo struct {
	// offset is where the block begins in the file. The footer does not store it: parseFooter adds
	// up the lengths. length is the size of the encoded block.
	offset, length    int64
	checksum          uint64 // xxh3-64 of the encoded block
	first, last       uint64 // sequences of the first and last record
	envelopes, events int
}

// segmentWriter builds a segment in memory. Create it with newSegmentWriter, add records, and call
// finish once.
type segmentWriter struct {
	log     events.LogID
	class   Class
	first   uint64        // the first sequence of the range, which may be below that of the first record
	data    []byte        // the file so far: the header and the encoded blocks
	blocks  []blockInfo   // of the blocks in data
	builder *blockBuilder // of the next block
	digest  digest        // of all added records, for comparison with what is read back

	// The numbers of records and events that were added.
	envelopes uint64
	events    uint64
}

// newSegmentWriter returns a writer of an empty segment whose range begins at the sequence first.
func newSegmentWriter(log events.LogID, class Class, first uint64) *segmentWriter {
	w := &segmentWriter{log: log, class: class, first: first, builder: newBlockBuilder()}
	w.data = append(append(w.data, segmentMagic...), segmentVersion, byte(class))
	return w
}

func (w *segmentWriter) isEmpty() bool { return w.envelopes == 0 }

// estimatedSize returns the approximate size of the segment in bytes, without the footer. The
// columns and dictionaries of the block that is not encoded yet count with a third of their size,
// because compression typically leaves about that much.
func (w *segmentWriter) estimatedSize() int { return len(w.data) + w.builder.estimatedSize()/3 }

// addRecord appends a record, and begins a new block if the record does not fit into the current
// one. The sequences must rise and the last times must not fall, which addRecord does not check. It
// fails with [ErrOrder] if the slots of the events do not rise or a kind is invalid; the writer
// then holds a part of the record and must be abandoned.
func (w *segmentWriter) addRecord(r *record) error {
	if !w.builder.fits(r) {
		w.flushBlock()
	}
	if err := w.builder.addRecord(r); err != nil {
		return err
	}

	w.digest.addRecord(r)
	w.envelopes++
	w.events += uint64(len(r.events))
	return nil
}

// flushBlock encodes the records that are in no block yet, if there are any, as the next block.
func (w *segmentWriter) flushBlock() {
	b := w.builder
	if b.isEmpty() {
		return
	}

	info := blockInfo{
		offset: int64(len(w.data)), first: b.firstSeq, last: b.lastSeq,
		envelopes: len(b.records.seqs), events: len(b.forms),
	}

	w.data = b.appendEncoded(w.data)
	body := w.data[info.offset:]
	info.length = int64(len(body))
	info.checksum = xxh3.Hash(body)
	w.blocks = append(w.blocks, info)
	w.builder = newBlockBuilder()
}

// finish completes the file in w.data with the last block, the footer and the tail, and returns the
// segment's entry for the manifest, with a new name. last is the last sequence of the range, which
// may be above that of the last record, and lastTime becomes segment.lastTime. The writer must not
// be used afterwards, except that its data and its digest may be read.
func (w *segmentWriter) finish(last uint64, lastTime events.Micros) segment {
	w.flushBlock()

	footer := append([]byte(nil), w.log[:]...)
	for _, n := range []uint64{w.first, last, w.envelopes, w.events, uint64(len(w.blocks))} {
		footer = binary.AppendUvarint(footer, n)
	}
	for _, b := range w.blocks {
		footer = binary.AppendUvarint(footer, uint64(b.length))
		footer = binary.BigEndian.AppendUint64(footer, b.checksum)
		for _, n := range []uint64{b.first, b.last, uint64(b.envelopes), uint64(b.events)} {
			footer = binary.AppendUvarint(footer, n)
		}
	}

	checksum := segmentChecksum(w.data[:headerLen], footer)
	w.data = append(w.data, footer...)
	w.data = append(w.data, checksum[8:]...) // the manifest has all 16 bytes
	w.data = binary.BigEndian.AppendUint32(w.data, uint32(len(footer)))
	w.data = append(w.data, tailMagic...)

	return segment{
		object: object{newObjectName(w.class.String(), w.first, last), int64(len(w.data)), hex.EncodeToString(checksum[:])},
		class:  w.class, first: w.first, last: last, lastTime: lastTime, envelopes: w.envelopes, events: w.events,
	}
}

// segmentChecksum returns the xxh3-128 of header and footer. This also protects the blocks, because
// the footer contains their checksums. So a segment can be opened and verified block by block
// without reading the whole file.
func segmentChecksum(header, footer []byte) [16]byte {
	var h xxh3.Hasher
	_, _ = h.Write(header)
	_, _ = h.Write(footer)
	return h.Sum128().Bytes()
}

// segmentReader reads the blocks of a segment. Create it with openSegment.
type segmentReader struct {
	bucket bucket.Bucket
	segment
	blocks []blockInfo // from the footer, in the order of the file
}

// damageError returns an [ErrDamaged] with the name of the segment and a text formatted as by
// [fmt.Sprintf].
func (s *segment) damageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, s.name, fmt.Sprintf(format, args...))
}

// classifyReadError wraps an error of reading the segment. If the object is missing or too short,
// the result is an [ErrDamaged]. Any other error is a failure of the bucket, which may be
// temporary, or the end of the context. The result still wraps [bucket.ErrNotFound], by which
// callers recognize an object that may be missing only because it was merged or scrubbed: see
// reloadIfReplaced.
func (s *segment) classifyReadError(err error) error {
	if errors.Is(err, bucket.ErrNotFound) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, s.name, err)
	}
	return fmt.Errorf("archive: read %s: %w", s.name, err)
}

// openSegment reads the header and the footer of the segment s, which is the manifest's entry, and
// compares them with s. It does not read the blocks. It fails with [ErrDamaged] if the object is
// missing, too short or differs from s, with [ErrVersion] if a newer version of skein wrote the
// segment, and otherwise with the error of the bucket. Bytes after the end that s states are
// ignored.
func openSegment(ctx context.Context, b bucket.Bucket, log events.LogID, s segment) (*segmentReader, error) {
	if s.bytes < int64(headerLen+tailLen) {
		return nil, s.damageError("it has %d bytes", s.bytes)
	}

	header, err := readRange(ctx, b, s.name, 0, int64(headerLen))
	if err != nil {
		return nil, s.classifyReadError(err)
	}
	if string(header[:len(segmentMagic)]) != segmentMagic || header[headerLen-1] != byte(s.class) {
		return nil, s.damageError("it is no segment of class %v", s.class)
	}
	if v := header[len(segmentMagic)]; v > segmentVersion {
		return nil, fmt.Errorf("%w: %s has version %d, this one knows %d", ErrVersion, s.name, v, segmentVersion)
	}

	// Read the tail, and with it, in most segments, the whole footer.
	from := max(int64(headerLen), min(s.bytes-footerGuess, s.bytes-int64(tailLen)))
	end, err := readRange(ctx, b, s.name, from, s.bytes-from)
	if err != nil {
		return nil, s.classifyReadError(err)
	}
	if !bytes.HasSuffix(end, []byte(tailMagic)) {
		return nil, s.damageError("it has no end")
	}

	// The file states the length of the footer, and may be damaged. So check the length before it
	// decides how much is read and allocated.
	length := int64(binary.BigEndian.Uint32(end[len(end)-tailLen+8:]))
	at := s.bytes - int64(tailLen) - length
	if at < int64(headerLen) || length > maxFooterBytes {
		return nil, s.damageError("the footer has %d bytes", length)
	}
	if at < from {
		more, err := readRange(ctx, b, s.name, at, from-at)
		if err != nil {
			return nil, s.classifyReadError(err)
		}
		end = append(more, end...)
		from = at
	}

	footer := end[at-from : int64(len(end))-int64(tailLen)]
	sum := segmentChecksum(header, footer)
	if !bytes.Equal(sum[8:], end[len(end)-tailLen:][:8]) || hex.EncodeToString(sum[:]) != s.checksum {
		return nil, s.damageError("the checksum of the footer does not match")
	}

	r := &segmentReader{bucket: b, segment: s}
	if !r.parseFooter(log, footer, at) {
		return nil, s.damageError("the footer does not agree with the manifest")
	}
	return r, nil
}

// parseFooter sets r.blocks from the footer, which begins at offset at of the file. It reports
// whether the footer is well-formed, has the log, range and numbers of the manifest's entry, and
// has blocks that fill the file up to the footer, with as many records and events as the segment.
func (r *segmentReader) parseFooter(log events.LogID, footer []byte, at int64) bool {
	c := &columnReader{rest: footer}
	if !bytes.Equal(c.readBytes(16), log[:]) {
		return false
	}
	for _, expected := range []uint64{r.first, r.last, r.envelopes, r.events} {
		if c.readUvarint() != expected {
			return false
		}
	}

	// The blocks must follow each other from the header to the footer, and their sequences must
	// rise within the range of the segment.
	n := c.readCount(maxBlocks)
	offset := int64(headerLen)
	var last, envelopes, evs uint64
	for range n {
		b := blockInfo{offset: offset, length: int64(c.readCount(maxBlockBytes))}
		if sum := c.readBytes(8); sum != nil {
			b.checksum = binary.BigEndian.Uint64(sum)
		}
		b.first = c.readUvarint()
		b.last = c.readUvarint()
		b.envelopes = c.readCount(maxBlockRecords)
		b.events = c.readCount(maxBlockEvents)
		isInOrder := max(r.first, last+1) <= b.first && b.first <= b.last && b.last <= r.last
		if c.failed || !isInOrder {
			return false
		}
		r.blocks = append(r.blocks, b)
		offset += b.length
		last = b.last
		envelopes += uint64(b.envelopes)
		evs += uint64(b.events)
	}
	return !c.failed && len(c.rest) == 0 && offset == at && envelopes == r.envelopes && evs == r.events
}

// readBlock reads a block from a stream of the segment's bytes that is at the beginning of that
// block. It fails with [ErrDamaged] if the stream ends within the block, if the block does not have
// the checksum, numbers and sequences of its entry in the footer, or if it cannot be decoded.
// Otherwise it fails with the error of the stream.
func (r *segmentReader) readBlock(stream io.Reader, info *blockInfo) (*block, error) {
	data := make([]byte, info.length)
	if _, err := io.ReadFull(stream, data); err != nil {
		return nil, r.classifyReadError(err)
	}
	if xxh3.Hash(data) != info.checksum {
		return nil, r.damageError("the checksum of the block at byte %d does not match", info.offset)
	}
	b, err := decodeBlock(data)
	if err != nil || !b.agreesWith(info) {
		return nil, r.damageError("the block at byte %d is malformed", info.offset)
	}
	return b, nil
}

// agreesWith reports whether a block has the numbers of records and events and the first and last
// sequence of its entry in the footer. No record may have been read from the block before, because
// reading advances b.seq.
func (b *block) agreesWith(info *blockInfo) bool {
	lastSeq := b.seq + sum(b.records.seqs) // these are differences to the record before; the first one is 0
	hasSameCounts := len(b.records.seqs) == info.envelopes && len(b.forms) == info.events
	return hasSameCounts && b.seq == info.first && lastSeq == info.last
}

// scanBlocks calls f with the blocks in order, from the first one that has a record after the given
// sequence up to the last one. The first of these blocks may begin with records up to that
// sequence, which f must skip. f may keep the blocks. An error of f ends the scan and is returned
// as it is. The other errors are those of readBlock, of opening the stream, and of ctx.
func (r *segmentReader) scanBlocks(ctx context.Context, after uint64, f func(*blockInfo, *block) error) error {
	skip := 0
	for skip < len(r.blocks) && r.blocks[skip].last <= after {
		skip++
	}
	blocks := r.blocks[skip:]
	if len(blocks) == 0 {
		return nil
	}

	// One request reads all blocks, because a remote bucket takes long to answer each request.
	end := &blocks[len(blocks)-1]
	stream, err := r.bucket.Get(ctx, r.name, blocks[0].offset, end.offset+end.length-blocks[0].offset)
	if err != nil {
		return r.classifyReadError(err)
	}
	defer stream.Close()

	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := r.readBlock(stream, &blocks[i])
		if err != nil {
			return err
		}
		if err := f(&blocks[i], b); err != nil {
			return err
		}
	}
	return nil
}

// readRange reads length bytes of an object from offset on. It fails with io.EOF if the object ends
// at or before offset, with io.ErrUnexpectedEOF if the object ends later but before all bytes were
// read, and otherwise with the error of the bucket, such as [bucket.ErrNotFound].
func readRange(ctx context.Context, b bucket.Bucket, name string, offset, length int64) ([]byte, error) {
	r, err := b.Get(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return data, nil
}
