package gateway

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// unpackStep is the initial size of the buffer for an inflated body, which is doubled as needed.
	initialDecompressBuffer = 8 << 10
	// deflateRatio is the greatest number of bytes that one byte of deflate can become.
	deflateRatio = 1032
)

// holdAnswer holds so many bytes of an answer until its client has taken it, for which the time begins.
func reserveAnswer(ctx context.Context, bytes int) *apierror.Failure {
	a := httpCallOf(ctx)
	if a == nil {
		return nil
	}
	if f := a.memory.Hold(int64(bytes)); f != nil {
		return f
	}
	a.deadline.extend()
	return nil
}

// answerRefused is the error that a client gets instead of an answer for which there is no memory.
func (s *Server) answerRefusedError(ctx context.Context, f *apierror.Failure) error {
	s.metrics.Refused(f)
	return addErrorID(ctx, f.ConnectError())
}

// inbound is the body of a request. It counts what comes, and refuses what is larger than a body may be.
type boundedBody struct {
	io.ReadCloser
	s      *Server
	memory *admission.Holding
	left   int64
	// http1 means that errors of reading are those of HTTP/1.
	http1 bool
}

// Read is part of [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.s.tooLargeError("").ConnectError()
	}
	if f := b.memory.Hold(admission.HeldPerByte * int64(n)); f != nil {
		return 0, f.ConnectError()
	}
	return n, b.classifyReadError(err)
}

// malformed turns an error of reading into that of the caller, if the bytes are at fault: chunks that are none, or an end before the
// end of the body. Errors of the connection, as that a deadline has passed, stay as they are.
func (b *boundedBody) classifyReadError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || !b.http1 {
		return err
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return err
	}
	return (&apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Cause: err,
		Text: "the body is not framed as the header says: " + err.Error(),
	}).ConnectError()
}

// encodingHeader is the header that names the compression of messages, and whether each has a prefix of its own.
func encodingHeader(r *http.Request) (header string, prefixed bool) {
	kind := r.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(kind, "application/grpc"):
		return "Grpc-Encoding", true
	case strings.HasPrefix(kind, "application/connect+"):
		return "Connect-Content-Encoding", true
	}
	return "Content-Encoding", false
}

// flagPacked is set in the prefix of a message that is compressed.
const flagCompressed = 1

// unpack inflates the body of a request, up to the limit and not beyond: all of it is in memory before it is decoded. A body without
// gzip stays as it is.
func (s *Server) decompressBody(r *http.Request, held *admission.Holding) *apierror.Failure {
	if r.Method == http.MethodGet {
		if q := r.URL.Query(); q.Get("compression") == gzipEncoding {
			// A short one, of which no more can come than this.
			return held.Hold(admission.HeldPerByte * min(int64(s.limits.BodyBytes), deflateRatio*int64(len(q.Get("message")))))
		}
		return nil
	}
	header, prefixed := encodingHeader(r)
	if r.Header.Get(header) != gzipEncoding {
		return nil
	}
	body := &replayedBody{ReadCloser: r.Body}
	packed, room := io.Reader(body), 0
	r.Body = body
	if prefixed {
		prefix := make([]byte, prefixBytes)
		n, err := io.ReadFull(body, prefix)
		if err != nil || prefix[0] != flagCompressed {
			body.first = prefix[:n]
			return nil //nolint:nilerr // who reads again finds what is wrong
		}
		packed, room = &io.LimitedReader{R: body, N: int64(binary.BigEndian.Uint32(prefix[1:]))}, prefixBytes
	}
	data, f := s.decompress(packed, held, room)
	if f != nil {
		if f.Code == connect.CodeInternal {
			body.err = f.Cause // it was interrupted: who reads again finds how
			return nil
		}
		return f
	}
	if body.first = data; prefixed {
		data[0] = 0
		binary.BigEndian.PutUint32(data[1:], uint32(len(data)-prefixBytes))
	} else {
		r.Header.Del(header)
	}
	r.ContentLength = -1
	return nil
}

// prefixBytes is the length of the prefix of a message: its flags, and its length.
const prefixBytes = 5

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }} //nolint:gochecknoglobals // memory only

// inflate returns what was packed, with room before it.
func (s *Server) decompress(packed io.Reader, held *admission.Holding, room int) ([]byte, *apierror.Failure) {
	source := &sourceErrors{Reader: packed}
	z, _ := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(z)
	data := make([]byte, room, initialDecompressBuffer)
	err := z.Reset(source)
	for err == nil {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, 2*cap(data)), data...)
		}
		var n int
		n, err = z.Read(data[len(data):min(cap(data), room+s.limits.BodyBytes+1)])
		data = data[:len(data)+n]
		if len(data)-room > s.limits.BodyBytes {
			return nil, s.tooLargeError(" once it is inflated")
		}
		if f := held.Hold(admission.HeldPerByte * int64(n)); f != nil {
			return nil, f
		}
	}
	switch {
	case source.err != nil:
		return nil, apierror.Of(source.err)
	case errors.Is(err, io.EOF):
		return data, nil // an empty body is an empty message, packed or not
	}
	return nil, &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Cause: err,
		Text: "the body is not the gzip that its header says: " + err.Error(),
	}
}

// sourceErrors keeps the error of what is inflated, apart from those of inflating.
type sourceErrors struct {
	io.Reader
	err error
}

// Read is part of [io.Reader].
func (s *sourceErrors) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// compression is gzip for what is not unpacked here: it inflates up to the limit, and does not read the rest to tell its size.
func (s *Server) gzipOption() connect.HandlerOption {
	return connect.WithCompression(gzipEncoding,
		func() connect.Decompressor { return &boundedGzip{s: s} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// boundedGzip is a reader of gzip that ends with an error at the limit.
type boundedGzip struct {
	gzip.Reader
	s    *Server
	left int
}

// Reset is part of connect.Decompressor.
func (z *boundedGzip) Reset(r io.Reader) error {
	z.left = z.s.limits.BodyBytes
	return z.Reader.Reset(r)
}

// Read is part of io.Reader.
func (z *boundedGzip) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p[:min(len(p), z.left+1)])
	if z.left -= n; z.left < 0 {
		return 0, z.s.tooLargeError(" once it is inflated").ConnectError()
	}
	return n, err
}

// replayed is a body of which a part was read, with the error that ended that.
type replayedBody struct {
	io.ReadCloser
	first []byte
	err   error
}

// Read is part of [io.Reader].
func (b *replayedBody) Read(p []byte) (int, error) {
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
