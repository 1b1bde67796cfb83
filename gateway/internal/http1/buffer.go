package http1

import (
	"compress/gzip"
	"io"
	"sync"
)

// CompressMinBytes is the size from which answers are compressed, for clients that accept it. A smaller one fits into a packet anyway.
const CompressMinBytes = 1024

// Values of headers. All answers share them, so they must not be changed.
var (
	protoName = []string{"application/proto"}
	gzipName  = []string{"gzip"}
	noSniff   = []string{"nosniff"}
)

// callBuffer holds the body of a call, then that of its answer: a decoded message shares nothing with what it was decoded
// from.
type callBuffer struct {
	bytes []byte
	// room is the number of bytes left free at the beginning, where the head of the answer is written, so that both go out in one write.
	room int
}

var callBuffers = sync.Pool{New: func() any { return &callBuffer{bytes: make([]byte, 0, 4096)} }} //nolint:gochecknoglobals // memory only

func takeBuffer(room int) *callBuffer {
	b, _ := callBuffers.Get().(*callBuffer)
	b.room, b.bytes = room, b.bytes[:room]
	return b
}

func (b *callBuffer) give() {
	if cap(b.bytes) <= maxKeptBuffer {
		callBuffers.Put(b)
	}
}

// held is what is held, without the room before it.
func (b *callBuffer) held() []byte { return b.bytes[b.room:] }

// packs reports whether the message is large enough to be compressed.
func (b *callBuffer) packs() bool { return len(b.held()) >= CompressMinBytes }

// packed returns what is held, compressed, with as much room before it. It is to be given back, too.
func (b *callBuffer) packed() *callBuffer {
	small := takeBuffer(b.room)
	z, _ := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)
	z.Reset(small)
	// A buffer in memory takes everything.
	_, _ = z.Write(b.held())
	_ = z.Close()
	return small
}

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }} //nolint:gochecknoglobals // memory only

// Write appends. It is part of io.Writer.
func (b *callBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}
