package http1

import (
	"compress/gzip"
	"io"
	"sync"
)

const (
	// CompressMinBytes is the size from which answers are compressed, for clients that accept it. A
	// smaller answer fits into one packet anyway.
	CompressMinBytes = 1024
	// maxPooledBuffer is the largest buffer that is used again. A page of a thousand entries fits.
	maxPooledBuffer = 256 << 10
)

// answerBuffer holds the message of an answer, with space in front for the head of the answer, so
// that both go out in one write.
type answerBuffer struct {
	bytes []byte
	// headSpace is the number of bytes in front of the message.
	headSpace int
}

var answerBuffers = sync.Pool{New: func() any { return &answerBuffer{bytes: make([]byte, 0, 4096)} }} //nolint:gochecknoglobals // memory only

// newAnswerBuffer returns a buffer without a message. The caller must call free.
func newAnswerBuffer(headSpace int) *answerBuffer {
	b, _ := answerBuffers.Get().(*answerBuffer)
	b.headSpace = headSpace
	b.bytes = b.bytes[:headSpace]
	return b
}

// free makes the buffer available to other answers.
func (b *answerBuffer) free() {
	// A pool of large buffers would keep the memory of the largest answers for long.
	if cap(b.bytes) <= maxPooledBuffer {
		answerBuffers.Put(b)
	}
}

// message returns the bytes behind the head space.
func (b *answerBuffer) message() []byte { return b.bytes[b.headSpace:] }

// Write appends to the message. It is part of [io.Writer], and never fails.
func (b *answerBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }} //nolint:gochecknoglobals // memory only

// compressed returns a second buffer with the compressed message, and as much head space. The
// caller must call free for both.
func (b *answerBuffer) compressed() *answerBuffer {
	packed := newAnswerBuffer(b.headSpace)
	z, _ := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(packed)
	// Writing to a buffer in memory never fails.
	_, _ = z.Write(b.message())
	_ = z.Close()
	return packed
}
