package http1

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// framing counts the header lines of a connection that say where a message ends. A message with
// both a Content-Length and a Transfer-Encoding must end its connection (RFC 9112, 6.1 and 6.3): a
// proxy that goes by the other header takes the bytes behind the message for something else.
// net/http goes by the Transfer-Encoding, and deletes the Content-Length before a handler can see
// it. So the lines are counted as they are read, and compared with what the handler sees.
//
// Each line that begins like such a header counts, also a line of a body, or of a message that was
// read ahead. So a chunked message may end its connection without need, but a message with both
// headers never keeps it.
type framing struct {
	// lineStart[:lineBytes] is the beginning of the current line.
	lineStart [len("Transfer-Encoding:")]byte
	lineBytes int
	// lengthLines and encodingLines count the lines that were read. net/http may read ahead while a
	// handler runs.
	lengthLines, encodingLines atomic.Uint64
	// handledLengths and handledEncodings count the headers that handlers have seen. The handlers
	// of a connection take turns.
	handledLengths, handledEncodings uint64
}

// countLines counts the lines of bytes that were read.
func (f *framing) countLines(p []byte) {
	for len(p) > 0 {
		// A line may arrive in several reads, so its beginning is kept from one to the next.
		line, rest, hasEnd := bytes.Cut(p, []byte{'\n'})
		f.lineBytes += copy(f.lineStart[f.lineBytes:], line)
		if !hasEnd {
			return
		}
		if name, _, ok := bytes.Cut(f.lineStart[:f.lineBytes], []byte{':'}); ok {
			switch {
			case equalFold(name, headerNames[contentLength]):
				f.lengthLines.Add(1)
			case equalFold(name, headerNames[transferEncoding]):
				f.encodingLines.Add(1)
			}
		}
		f.lineBytes = 0
		p = rest
	}
}

// mustClose is [MustClose] for a connection whose lines were counted. It must be called once per
// request.
func (f *framing) mustClose(r *http.Request) bool {
	isChunked := len(r.TransferEncoding) > 0
	if isChunked {
		f.handledEncodings++
	}
	if r.Header[headerNames[contentLength]] != nil {
		f.handledLengths++
	}
	if isChunked {
		return f.lengthLines.Load() > f.handledLengths
	}
	// net/http ignores the Transfer-Encoding of HTTP/1.0.
	return !r.ProtoAtLeast(1, 1) && f.encodingLines.Load() > f.handledEncodings
}

type framingKey struct{}

// ConnContext returns a context for a connection that net/http serves, from which [MustClose] gets
// the counts of the connection.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(interface{ lineCounts() *framing }); ok {
		return context.WithValue(ctx, framingKey{}, c.lineCounts())
	}
	return ctx
}

// MustClose reports whether the connection of a request must close after the answer, because the
// request may have had both a Content-Length and a Transfer-Encoding. A handler must call it once
// per request. Without the context of [ConnContext] nothing was counted: then each request of
// HTTP/1.0, and each chunked request, closes its connection.
func MustClose(r *http.Request) bool {
	if r.ProtoMajor != 1 {
		return false
	}
	if f, ok := r.Context().Value(framingKey{}).(*framing); ok {
		return f.mustClose(r)
	}
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1)
}
