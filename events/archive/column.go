package archive

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// errMalformed means that the decoded bytes were not written by the encoder. Callers turn it into
// an [ErrDamaged] that names the object.
var errMalformed = errors.New("archive: malformed")

// Bounds of a block. A decoder rejects larger values, so that damaged bytes cannot make it allocate
// much memory.
const (
	// maxBlockEvents, maxBlockRecords and maxBlockRejects bound the events, envelopes and rejects
	// of a block.
	maxBlockEvents  = 1 << 16
	maxBlockRecords = 1 << 16
	maxBlockRejects = 1 << 16
	// blockTargetBytes is the approximate size at which a block is full, in bytes of columns before
	// compression. A block may exceed it by one envelope, because an envelope is never split over
	// two blocks.
	blockTargetBytes = 2 << 20
	// maxColumn bounds the values of a column, and maxChunk the bytes of a chunk. blockTargetBytes
	// keeps the blocks that the encoder writes far below both.
	maxColumn = 1 << 20
	maxChunk  = 16 << 20
	// maxBlockBytes bounds the decompressed size of all columns of a block.
	maxBlockBytes = 64 << 20
)

// The zstd encoder and decoder are shared because each has large tables. EncodeAll and DecodeAll
// are safe for concurrent use.
//
//nolint:gochecknoglobals // computed once, and immutable from then on
var (
	compressor = sync.OnceValue(func() *zstd.Encoder {
		// Blocks and files have checksums of their own, so zstd need not add one to each chunk.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			panic(err) // never: the options are constants
		}
		return e
	})
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		// DecodeAll must not grow its result beyond the capacity that readChunk gives it, because
		// the bytes may be hostile. Concurrency 0 means one decoder for each core.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(maxChunk), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err) // never: the options are constants
		}
		return d
	})
)

// appendChunk appends bytes: the length, the compressed length (0 means not compressed), then the
// bytes. It compresses only if that saves at least 1/64, because a plane of random bytes would only
// cost time.
func appendChunk(dst, data []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	if len(data) == 0 {
		return dst
	}
	packed := compressor().EncodeAll(data, nil)
	if len(packed) >= len(data)-len(data)/64 {
		return append(binary.AppendUvarint(dst, 0), data...)
	}
	return append(binary.AppendUvarint(dst, uint64(len(packed))), packed...)
}

// columnReader decodes what the append functions of this package encoded: numbers, chunks, columns
// and texts, one after the other. After an error all its methods return zero values, so that
// callers need to check failed only once, at the end.
type columnReader struct {
	rest             []byte
	decompressBudget int // bytes that may still be decompressed
	failed           bool
}

// fail records that the input is malformed, and drops the rest of it.
func (c *columnReader) fail() {
	c.failed = true
	c.rest = nil
}

// readUvarint reads a varint.
func (c *columnReader) readUvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// readCount reads a varint that must not be above limit.
func (c *columnReader) readCount(limit int) int {
	v := c.readUvarint()
	if v > uint64(limit) {
		c.fail()
		return 0
	}
	return int(v)
}

// readBytes reads n bytes, which share memory with the input.
func (c *columnReader) readBytes(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.fail()
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// readChunk reads the bytes that appendChunk wrote. The returned slice may share memory with the
// input.
func (c *columnReader) readChunk() []byte {
	n := c.readCount(min(maxChunk, c.decompressBudget))
	if n == 0 {
		return nil
	}
	packed := c.readCount(maxChunk)
	if packed == 0 {
		return c.readBytes(n)
	}

	src := c.readBytes(packed)
	if c.failed {
		return nil
	}

	// The length of the result is limited before decompression, so that a small input cannot expand
	// without bound.
	c.decompressBudget -= n
	data, err := decompressor().DecodeAll(src, make([]byte, 0, n))
	if err != nil || len(data) != n {
		c.fail()
		return nil
	}
	return data
}

// appendColumn appends numbers: the smallest one, the width in bytes of the differences to it, and
// a chunk for each byte of that width, lowest byte first. Bytes of the same significance compress
// better side by side than whole numbers. The number of values is not stored: the reader knows it.
func appendColumn(dst []byte, values []uint64) []byte {
	if len(values) == 0 {
		return dst
	}
	lowest, highest := values[0], values[0]
	for _, v := range values {
		lowest = min(lowest, v)
		highest = max(highest, v)
	}

	width := (bits.Len64(highest-lowest) + 7) / 8 // 0 if all values are equal: then there is no chunk
	dst = binary.AppendUvarint(dst, lowest)
	dst = append(dst, byte(width))

	plane := make([]byte, len(values))
	for p := range width {
		for i, v := range values {
			plane[i] = byte((v - lowest) >> (8 * p))
		}
		dst = appendChunk(dst, plane)
	}
	return dst
}

// columnValue is the type of the numbers to which a column is decoded.
type columnValue interface{ ~uint8 | ~uint32 | ~uint64 }

// readColumn reads n numbers that appendColumn wrote, and fails if one is not below limit. A limit
// of 0 allows every value of the type.
func readColumn[T columnValue](c *columnReader, n int, limit uint64) []T {
	if n == 0 || c.failed {
		return nil
	}

	lowest := c.readUvarint()
	width := c.readBytes(1)
	if c.failed || n > maxColumn || width[0] > 8 {
		c.fail()
		return nil
	}

	planes := make([][]byte, width[0])
	for p := range planes {
		planes[p] = c.readChunk()
		if len(planes[p]) != n {
			c.fail()
			return nil
		}
	}

	values := make([]T, n)
	bound := uint64(^T(0))
	if limit > 0 {
		bound = limit - 1
	}
	if !joinPlanes(values, planes, lowest, bound) {
		c.fail()
		return nil
	}
	return values
}

// joinPlanes assembles the values of a column from its byte planes, and reports whether all of them
// are at most bound. The common widths have loops of their own, because reading an archive spends
// much of its time here.
func joinPlanes[T columnValue](values []T, planes [][]byte, lowest, bound uint64) bool {
	var highest uint64
	switch len(planes) {
	case 0:
		highest = lowest
		for i := range values {
			values[i] = T(lowest)
		}
	case 1:
		for i, b := range planes[0][:len(values)] {
			v := lowest + uint64(b)
			highest = max(highest, v)
			values[i] = T(v)
		}
	case 2:
		low, high := planes[0][:len(values)], planes[1][:len(values)]
		for i := range values {
			v := lowest + uint64(low[i]) + uint64(high[i])<<8
			highest = max(highest, v)
			values[i] = T(v)
		}
	default:
		for i := range values {
			var v uint64
			for p, plane := range planes {
				v |= uint64(plane[i]) << (8 * p)
			}
			v += lowest
			highest = max(highest, v)
			values[i] = T(v)
		}
	}
	return highest <= bound
}

// zigzag maps a number of small magnitude, positive or negative, to a small unsigned number.
func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// unzigzag is the inverse of zigzag.
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// appendTexts appends strings: first their lengths as a column, then all strings joined, as one
// chunk.
func appendTexts(dst []byte, texts []string) []byte {
	lengths := make([]uint64, len(texts))
	var all []byte
	for i, t := range texts {
		lengths[i] = uint64(len(t))
		all = append(all, t...)
	}
	return appendChunk(appendColumn(dst, lengths), all)
}

// readTexts reads n strings that appendTexts wrote. The strings share one allocation.
func readTexts(c *columnReader, n int) []string {
	lengths := readColumn[uint32](c, n, maxChunk)
	all := string(c.readChunk())
	if c.failed {
		return nil
	}

	texts := make([]string, len(lengths))
	for i, l := range lengths {
		if int(l) > len(all) {
			c.fail()
			return nil
		}
		texts[i] = all[:l]
		all = all[l:]
	}
	if all != "" {
		c.fail()
		return nil
	}
	return texts
}
