package gateway

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// A plain call is a unary call as nearly all of them are: the Connect protocol over HTTP/1.1, binary, not compressed, of
// a known and small length. It is answered here, in the way that Connect's own handler would, which costs more than a point
// read (docs/decisions/0013). Whatever is not plain goes to that handler as it came, and so does a plain call that
// fails before its method was asked: what is answered here is a result, or an error of the method itself.
type plainCall struct {
	// timeout is that of the caller; negative: none.
	timeout time.Duration
	// gzip tells that the caller takes compressed answers.
	gzip bool
	// authorization is the header that says who calls; empty: there is none.
	authorization string
}

const (
	// maxPlainBody bounds what is set aside for a body before any of it has come.
	maxPlainBody = 64 << 10
	// maxKeptBuffer bounds the buffers that are kept for later calls. A page of a thousand entries has its place.
	maxKeptBuffer = 256 << 10
	// writtenWhole is an answer of which net/http finds the length by itself. A longer one it would send in chunks.
	writtenWhole = 2048
)

// plainOf tells whether a call is plain. It looks at every header that Connect's handler looks at for a POST, and lets
// pass the values that it knows; other headers change nothing there either.
func plainOf(r *http.Request) (c plainCall, ok bool) {
	if r.Method != http.MethodPost || r.ProtoMajor != 1 || r.ContentLength < 0 || r.ContentLength > maxPlainBody {
		return c, false
	}
	if v, one := headerOf(r, "Content-Type"); !one || v != "application/proto" {
		return c, false
	}
	if v, one := headerOf(r, "Content-Encoding"); !one || v != "" {
		return c, false
	}
	if v, one := headerOf(r, "Connect-Protocol-Version"); !one || v != "" && v != "1" {
		return c, false
	}
	switch v, one := headerOf(r, "Accept-Encoding"); {
	case !one || v != "" && v != "identity" && v != "gzip":
		return c, false
	default:
		c.gzip = v == "gzip"
	}
	var one bool
	if c.authorization, one = headerOf(r, "Authorization"); !one {
		return c, false
	}
	v, one := headerOf(r, "Connect-Timeout-Ms")
	if !one || len(v) > 10 {
		return c, false
	}
	if c.timeout = -1; v != "" {
		millis, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return c, false
		}
		c.timeout = time.Duration(millis) * time.Millisecond
	}
	return c, true
}

// headerOf returns a header that stands at most once, and tells whether it does.
func headerOf(r *http.Request, name string) (string, bool) {
	switch v := r.Header[name]; len(v) {
	case 0:
		return "", true
	case 1:
		return v[0], true
	}
	return "", false
}

// unaryMethod is a request-response method.
type unaryMethod[Req, Res any, P message[Req]] struct {
	*method
	check func(P) []violation
	do    func(context.Context, P, *extra) (*Res, error)
	// ordinary is Connect's handler, for all protocols and encodings.
	ordinary http.Handler
}

// ServeHTTP answers plain calls by itself, and has all others answered.
func (u *unaryMethod[Req, Res, P]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := plainOf(r)
	if !ok {
		u.ordinary.ServeHTTP(w, r)
		return
	}
	from := u.s.who(c.authorization, certificateOf(r.TLS))
	if from.denied != nil && !u.right.open {
		// Before the body: who is not known cannot have a call under way for as long as that may take.
		u.s.turnAway(w, r, unknownCaller(from.denied))
		return
	}
	ctx := r.Context()
	if c.timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	buf := takeBuffer()
	defer buf.give()
	if err := buf.read(r.Body, int(r.ContentLength)); err != nil || ctx.Err() != nil {
		r = r.WithContext(ctx)
		r.Body = &replayed{ReadCloser: r.Body, first: buf.bytes, err: err}
		u.ordinary.ServeHTTP(w, r)
		return
	}
	in := &struct {
		req received[Req, P]
		x   extra
	}{x: extra{lag: -1}}
	if err := unmarshalProto(buf.bytes, in.req.message()); err != nil {
		in.req.undecoded(err)
	}
	res, err := u.answer(ctx, from, &in.req, &in.x)
	header := w.Header()
	header["Accept-Encoding"] = gzipName
	if err == nil {
		err = buf.encode(any(res))
	}
	if err != nil {
		if err = u.s.errorWriter.Write(w, r, err); err != nil {
			u.s.log.DebugContext(ctx, "answer not sent", "error", err)
		}
		return
	}
	header["Content-Type"] = protoName
	if in.x.lag >= 0 {
		header[LagHeader] = lagValue(in.x.lag)
	}
	buf.send(w, c.gzip)
}

// Values of headers. They are shared by all answers: nobody changes them.
var (
	protoName = []string{"application/proto"}
	gzipName  = []string{"gzip"}
)

// replayed is a body of which a part was read, with the error that ended that.
type replayed struct {
	io.ReadCloser
	first []byte
	err   error
}

func (b *replayed) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

// callBuffer holds the body of a call, then that of its answer: a decoded message shares nothing with what it was decoded
// from.
type callBuffer struct{ bytes []byte }

var callBuffers = sync.Pool{New: func() any { return &callBuffer{make([]byte, 0, 4096)} }} //nolint:gochecknoglobals // memory only

func takeBuffer() *callBuffer {
	b, _ := callBuffers.Get().(*callBuffer)
	return b
}

func (b *callBuffer) give() {
	if cap(b.bytes) <= maxKeptBuffer {
		callBuffers.Put(b)
	}
}

// read reads a body of known length. The error is that of the body, as it was told; what came before it is kept.
func (b *callBuffer) read(body io.Reader, length int) error {
	if cap(b.bytes) < length {
		b.bytes = make([]byte, 0, length)
	}
	b.bytes = b.bytes[:0]
	for len(b.bytes) < length {
		n, err := body.Read(b.bytes[len(b.bytes):length])
		if b.bytes = b.bytes[:len(b.bytes)+n]; err != nil && len(b.bytes) < length {
			return err
		}
	}
	return nil
}

// encode replaces what is held by an encoded message.
func (b *callBuffer) encode(v any) error {
	m, err := asMessage(v)
	if err == nil {
		var data []byte
		if data, err = appendProto(b.bytes[:0], m); err == nil {
			b.bytes = data
			return nil
		}
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", err))
}

// send writes what is held as the body of an answer. An error means that the client is gone.
func (b *callBuffer) send(w http.ResponseWriter, compress bool) {
	data := b.bytes
	if compress && len(data) >= compressMinBytes {
		small := takeBuffer()
		defer small.give()
		small.bytes = small.bytes[:0]
		z, _ := gzips.Get().(*gzip.Writer)
		defer gzips.Put(z)
		z.Reset(small)
		// A buffer in memory takes everything.
		_, _ = z.Write(data)
		_ = z.Close()
		data = small.bytes
		w.Header()["Content-Encoding"] = gzipName
	}
	if len(data) >= writtenWhole {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(data))}
	}
	_, _ = w.Write(data)
}

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }} //nolint:gochecknoglobals // memory only

// Write appends. It is part of io.Writer.
func (b *callBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}
