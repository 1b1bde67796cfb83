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
	// initialDecompressBuffer is the first size of the buffer for a decompressed body. The buffer
	// doubles as needed.
	initialDecompressBuffer = 8 << 10
	// maxDeflateRatio is the largest number of bytes into which one byte of deflate can decompress.
	maxDeflateRatio = 1032
)

// reserveAnswer counts the bytes of an answer as memory of its call until the client has read the
// answer. The time for reading begins now. Calls that did not come through net/http are not counted
// here.
func reserveAnswer(ctx context.Context, bytes int) *apierror.Failure {
	c := httpCallOf(ctx)
	if c == nil {
		return nil
	}
	if f := c.memory.Hold(int64(bytes)); f != nil {
		return f
	}
	c.deadline.extend()
	return nil
}

// answerRefusedError returns the error that a client gets instead of an answer for which there is
// no memory.
func (s *Server) answerRefusedError(ctx context.Context, f *apierror.Failure) error {
	s.metrics.Refused(f)
	return addErrorID(ctx, f.ConnectError())
}

// boundedBody is the body of a request. It counts the bytes that arrive as memory of the call, and
// fails if the body is larger than allowed.
type boundedBody struct {
	io.ReadCloser
	s      *Server
	memory *admission.Reservation
	// left is how many bytes may still arrive.
	left int64
	// isHTTP1 says that errors of reading are those of HTTP/1.
	isHTTP1 bool
}

// Read is part of [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	// One byte more than allowed is enough to see that the body is too large. Without the limit, a
	// large buffer could take in much more before it is noticed.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, b.s.tooLargeError("").ConnectError()
	}
	if f := b.memory.Hold(admission.HeldPerByte * int64(n)); f != nil {
		return 0, f.ConnectError()
	}
	return n, b.classifyReadError(err)
}

// classifyReadError returns an invalid_argument error if err is the fault of the request's bytes:
// they are not valid chunks, or the body ends too early. It returns errors of the connection, such
// as a passed deadline, unchanged.
func (b *boundedBody) classifyReadError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || !b.isHTTP1 {
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

// encodingHeader returns the name of the header that names the compression of messages, and whether
// each message has a prefix with its flags and length.
func encodingHeader(r *http.Request) (header string, isPrefixed bool) {
	contentType := r.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(contentType, "application/grpc"):
		return "Grpc-Encoding", true
	case strings.HasPrefix(contentType, "application/connect+"):
		return "Connect-Content-Encoding", true
	}
	return "Content-Encoding", false
}

const (
	// prefixBytes is the length of a message's prefix: 1 byte of flags, and 4 bytes with the length
	// of the message.
	prefixBytes = 5
	// flagCompressed is the value of the flags of a compressed message.
	flagCompressed = 1
)

// decompressBody replaces a gzip body of a request by the decompressed one. Decompression ends at
// the size limit, and all of the body is in memory before it is decoded, so its lists can be
// counted first. Any other body stays as it is.
//
// An error of reading is not returned, but kept for the handler, which reads again and reports it
// in its own protocol.
func (s *Server) decompressBody(r *http.Request, memory *admission.Reservation) *apierror.Failure {
	if r.Method == http.MethodGet {
		if q := r.URL.Query(); q.Get("compression") == gzipEncoding {
			// Connect's handler decompresses the message in the query, where its bytes cannot be
			// counted as they come. So the largest possible size is counted, which is small,
			// because the message is part of the head.
			size := min(int64(s.limits.BodyBytes), maxDeflateRatio*int64(len(q.Get("message"))))
			return memory.Hold(admission.HeldPerByte * size)
		}
		return nil
	}
	header, isPrefixed := encodingHeader(r)
	if r.Header.Get(header) != gzipEncoding {
		return nil
	}

	body := &replayedBody{ReadCloser: r.Body}
	r.Body = body
	compressed := io.Reader(body)
	prefixSpace := 0
	if isPrefixed {
		prefix := make([]byte, prefixBytes)
		n, err := io.ReadFull(body, prefix)
		if err != nil || prefix[0] != flagCompressed {
			body.first = prefix[:n]
			return nil //nolint:nilerr // the handler reads again, and reports the error
		}
		compressed = &io.LimitedReader{R: body, N: int64(binary.BigEndian.Uint32(prefix[1:]))}
		prefixSpace = prefixBytes
	}

	data, f := s.decompress(compressed, memory, prefixSpace)
	if f != nil {
		if f.Code == connect.CodeInternal {
			body.err = f.Cause // reading was interrupted: the handler reads again, and reports how
			return nil
		}
		return f
	}

	// The handler gets a message that is not compressed.
	body.first = data
	if isPrefixed {
		data[0] = 0
		binary.BigEndian.PutUint32(data[1:], uint32(len(data)-prefixBytes))
	} else {
		r.Header.Del(header)
	}
	r.ContentLength = -1
	return nil
}

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }} //nolint:gochecknoglobals // memory only

// decompress returns the decompressed data, with prefixSpace unused bytes in front of it. The data
// counts as memory of the call.
func (s *Server) decompress(compressed io.Reader, memory *admission.Reservation, prefixSpace int) ([]byte, *apierror.Failure) {
	source := &errorRecordingReader{Reader: compressed}
	z, _ := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(z)

	data := make([]byte, prefixSpace, initialDecompressBuffer)
	err := z.Reset(source)
	for err == nil {
		// The buffer grows only when data has arrived for it, so a small body that claims to be
		// large takes little memory.
		if len(data) == cap(data) {
			data = append(make([]byte, 0, 2*cap(data)), data...)
		}
		var n int
		n, err = z.Read(data[len(data):min(cap(data), prefixSpace+s.limits.BodyBytes+1)])
		data = data[:len(data)+n]
		if len(data)-prefixSpace > s.limits.BodyBytes {
			return nil, s.tooLargeError(" once it is inflated")
		}
		if f := memory.Hold(admission.HeldPerByte * int64(n)); f != nil {
			return nil, f
		}
	}

	switch {
	case source.err != nil:
		// The connection has failed, or the body is refused: what gzip makes of that does not
		// matter.
		return nil, apierror.Of(source.err)
	case errors.Is(err, io.EOF):
		return data, nil // an empty body is an empty message, compressed or not
	}
	return nil, &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Cause: err,
		Text: "the body is not the gzip that its header says: " + err.Error(),
	}
}

// errorRecordingReader keeps the error of reading compressed data, which gzip.Reader returns like
// its own errors.
type errorRecordingReader struct {
	io.Reader
	err error
}

// Read is part of [io.Reader].
func (r *errorRecordingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// gzipOption makes Connect's handlers compress answers, and decompress those messages that
// decompressBody does not, such as those of GETs. Its decompressor stops at the size limit.
// Connect's own would read on to the end, only to report the full size.
func (s *Server) gzipOption() connect.HandlerOption {
	return connect.WithCompression(gzipEncoding,
		func() connect.Decompressor { return &boundedGzip{s: s} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// boundedGzip decompresses gzip, and fails at the size limit of bodies.
type boundedGzip struct {
	gzip.Reader
	s *Server
	// left is how many decompressed bytes are still allowed.
	left int
}

// Reset is part of [connect.Decompressor].
func (z *boundedGzip) Reset(r io.Reader) error {
	z.left = z.s.limits.BodyBytes
	return z.Reader.Reset(r)
}

// Read is part of [io.Reader].
func (z *boundedGzip) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p[:min(len(p), z.left+1)])
	z.left -= n
	if z.left < 0 {
		return 0, z.s.tooLargeError(" once it is inflated").ConnectError()
	}
	return n, err
}

// replayedBody is a body of which a part was read already. It returns that part first, and then
// either err or the rest of the body.
type replayedBody struct {
	io.ReadCloser
	first []byte
	// err is the error that ended reading, or nil.
	err error
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
