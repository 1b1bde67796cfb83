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

// A segment file:
//
//	"SKEINSEG" version class             the header
//	block…                               as blockBuilder.appendEncoded wrote them
//	log first last envelopes events      the footer: 16 bytes, then varints
//	  blocks { length checksum first last envelopes events }…
//	checksum length "SEGE"               the tail: half of the xxh3-128 of header and footer, and the footer's length
const (
	segmentMagic   = "SKEINSEG"
	segmentVersion = 1
	headerLen      = len(segmentMagic) + 2
	tailMagic      = "SEGE"
	tailLen        = 8 + 4 + len(tailMagic)

	// footerGuess is the number of bytes at the end of a segment that are read first. They hold the
	// whole footer of most segments, which saves a request to a remote bucket.
	footerGuess    = 32 << 10
	maxFooterBytes = 16 << 20
	maxBlocks      = 1 << 18
)

// blockInfo is the entry of a block in the footer.
type blockInfo struct {
	offset, length    int64  // in bytes; the offset is that in the file
	checksum          uint64 // xxh3-64
	first, last       uint64 // sequences of the first and last record
	envelopes, events int
}

// segmentWriter builds a segment in memory.
type segmentWriter struct {
	log     events.LogID
	class   Class
	first   uint64 // of the range
	data    []byte
	blocks  []blockInfo
	builder *blockBuilder
	digest  digest

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

// estimatedSize returns the approximate size of the segment in bytes. Columns that are not
// compressed yet count with a third of their size, which is a typical ratio.
func (w *segmentWriter) estimatedSize() int { return len(w.data) + w.builder.estimatedSize()/3 }

// addRecord appends a record, and begins a new block if the record does not fit into the current
// one. It fails with [ErrOrder] like blockBuilder.addRecord.
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

// flushBlock encodes the records added since the last block, if there are any, as the next block.
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

// finish writes the footer of a segment whose range ends at sequence last, and returns the
// segment's entry for the manifest, with a new name.
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
	w.data = append(w.data, checksum[8:]...) // the manifest has all of it
	w.data = binary.BigEndian.AppendUint32(w.data, uint32(len(footer)))
	w.data = append(w.data, tailMagic...)

	return segment{
		object: object{newObjectName(w.class.String(), w.first, last), int64(len(w.data)), hex.EncodeToString(checksum[:])},
		class:  w.class, first: w.first, last: last, lastTime: lastTime, envelopes: w.envelopes, events: w.events,
	}
}

// segmentChecksum returns the xxh3-128 of header and footer. It covers the whole segment, because
// the footer contains the checksums of the blocks.
func segmentChecksum(header, footer []byte) [16]byte {
	var h xxh3.Hasher
	_, _ = h.Write(header)
	_, _ = h.Write(footer)
	return h.Sum128().Bytes()
}

// segmentReader reads the blocks of a segment.
type segmentReader struct {
	bucket bucket.Bucket
	segment
	blocks []blockInfo
}

// damageError returns an [ErrDamaged] that names the segment.
func (s *segment) damageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, s.name, fmt.Sprintf(format, args...))
}

// classifyReadError wraps an error of reading the segment. A missing or short object is damage
// ([ErrDamaged]); anything else is a failure of the bucket, which may be temporary.
func (s *segment) classifyReadError(err error) error {
	if errors.Is(err, bucket.ErrNotFound) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, s.name, err)
	}
	return fmt.Errorf("archive: read %s: %w", s.name, err)
}

// openSegment reads the header and the footer of a segment and compares them with the manifest's
// entry. It fails with [ErrDamaged] if they differ, and with [ErrVersion] if a newer version of
// skein wrote the segment.
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

	// The length comes from the file, so it is checked before anything is read by it.
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

// parseFooter reads the footer, which begins at offset at, and reports whether it agrees with the
// manifest and with itself.
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

// readBlock reads the next block from the stream of the segment. It fails with [ErrDamaged] unless
// the block matches its checksum and its entry in the footer.
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

// agreesWith reports whether a block of which nothing was read yet is the one that the footer
// describes.
func (b *block) agreesWith(info *blockInfo) bool {
	lastSeq := b.seq + sum(b.records.seqs) // a record has the distance from the one before
	hasSameCounts := len(b.records.seqs) == info.envelopes && len(b.forms) == info.events
	return hasSameCounts && b.seq == info.first && lastSeq == info.last
}

// scanBlocks calls f with the blocks in order, from the first one that has a record after the given
// sequence. An error of f ends the scan and is returned.
func (r *segmentReader) scanBlocks(ctx context.Context, after uint64, f func(*blockInfo, *block) error) error {
	skip := 0
	for skip < len(r.blocks) && r.blocks[skip].last <= after {
		skip++
	}
	blocks := r.blocks[skip:]
	if len(blocks) == 0 {
		return nil
	}

	// One request reads all blocks, because a remote bucket takes long to answer each.
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

// readRange reads a part of an object. It fails with io.ErrUnexpectedEOF if the object ends within
// the part, and with io.EOF if it ends before it.
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
