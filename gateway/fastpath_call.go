package gateway

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
)

// A plain call is a unary call as nearly all of them are: the Connect protocol over HTTP/1.1, binary, not compressed, of
// a known and small length. It is answered here, in the way that Connect's own handler would, which costs more than a point
// read (docs/decisions/0013). Whatever is not plain goes to that handler as it came, and so does a plain call that
// fails before its method was asked: what is answered here is a result, or an error of the method itself.
//
// It comes from the loop that does without net/http (fastpath.go).
type plainCall struct {
	// timeout is that of the caller.
	timeout time.Duration
	// gzip reports that the caller takes compressed answers.
	gzip bool
	// seen has a bit for each header that was there.
	seen uint16
}

const (
	noTimeout time.Duration = -1
	// maxPlainBody bounds the memory that is allocated for a body before any of it has arrived.
	maxPlainBody = 64 << 10
	// maxKeptBuffer bounds the buffers that are reused. A page of a thousand entries fits; a larger one must not stay in the pool.
	maxKeptBuffer = 256 << 10
)

// take judges a header: the place for the rules of what is plain. It knows every header that Connect's handler looks at for
// a POST, and lets pass the values that it knows; other headers change nothing there either. None may be there twice.
func (c *plainCall) take(h header, v string) bool {
	if !c.first(h) {
		return false
	}
	switch h {
	case contentType:
		return v == "application/proto"
	case contentEncoding:
		return v == ""
	case protocolVersion:
		return v == "" || v == "1"
	case acceptEncoding:
		c.gzip = v == "gzip"
		return c.gzip || v == "" || v == "identity"
	case timeoutMillis:
		if v == "" {
			return true
		}
		millis, ok := number(v, 10)
		c.timeout = time.Duration(millis) * time.Millisecond
		return ok
	}
	return true
}

// first notes a header, and reports whether it was not there before.
func (c *plainCall) first(h header) bool {
	if c.has(h) {
		return false
	}
	c.seen |= 1 << h
	return true
}

func (c *plainCall) has(h header) bool { return c.seen&(1<<h) != 0 }

// plainMethod is a method that answers plain calls.
type plainMethod interface {
	// letsIn reports whether the body of a call may be read: an unauthenticated caller cannot have a call under way for as long as that
	// may take.
	letsIn(from identity) bool
	// answerPlain answers the call of which this is the body: with a message in out, and how many envelopes its state was
	// behind the log (negative: does not apply), or with an error of the method. The body may stand in out.
	answerPlain(ctx context.Context, from identity, body []byte, out *callBuffer) (lag int64, err error)
}

// unaryMethod is a request-response method.
type unaryMethod[Req, Res any, P request.Message[Req]] struct {
	*method
	check func(P) []apierror.Violation
	do    func(context.Context, P, *call.Info) (*Res, error)
	// Handler is Connect's, for all protocols and encodings: it answers what came through net/http.
	http.Handler
}

func (u *unaryMethod[Req, Res, P]) answerPlain(
	ctx context.Context, from identity, body []byte, out *callBuffer,
) (lag int64, err error) {
	in := &struct {
		req request.Received[Req, P]
		x   call.Info
	}{x: call.Info{Lag: -1, LongPages: u.s.budgets.LongPages}}
	defer in.x.Made()
	if err := request.UnmarshalProto(body, in.req.Message()); err != nil {
		in.req.Undecoded(err)
	}
	res, err := u.answer(ctx, from, &in.req, &in.x)
	if err == nil {
		err = out.encode(any(res))
	}
	return in.x.Lag, err
}

// Values of headers. All answers share them, so they must not be changed.
var (
	protoName = []string{"application/proto"}
	gzipName  = []string{"gzip"}
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

// encode replaces what is held by an encoded message.
func (b *callBuffer) encode(v any) error {
	m, err := request.AsMessage(v)
	if err == nil {
		var data []byte
		if data, err = request.AppendProto(b.bytes[:b.room], m); err == nil {
			b.bytes = data
			return nil
		}
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", err))
}

// packs reports whether the message is large enough to be compressed.
func (b *callBuffer) packs() bool { return len(b.held()) >= compressMinBytes }

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
