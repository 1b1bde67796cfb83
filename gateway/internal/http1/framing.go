package http1

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// framing counts the header lines on a connection that say where a message ends. A message with both a Content-Length and a
// Transfer-Encoding has to end its connection (RFC 9112, 6.1 and 6.3): a proxy that goes by the other one takes the bytes behind the
// message for something else. net/http goes by the Transfer-Encoding and deletes the Content-Length before a handler can see it,
// so the lines are counted as they are read, and compared with what the handler sees.
//
// Every line that starts like such a header counts, also one in a body or in a message that was read ahead. So a chunked message
// may end its connection without need, but a message with both headers never keeps it.
type framing struct {
	// start is what has come of the current line: n bytes of it.
	start [len("Transfer-Encoding:")]byte
	n     int
	// lengths and encodings were read.
	lengths, encodings atomic.Uint64
	// knownLengths and knownEncodings were seen by the handlers, which take turns.
	knownLengths, knownEncodings uint64
}

// read counts the lines in bytes that were read.
func (f *framing) read(p []byte) {
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		f.n += copy(f.start[f.n:], line)
		if !ended {
			return
		}
		if name, _, ok := bytes.Cut(f.start[:f.n], []byte{':'}); ok {
			switch {
			case isName(name, headerNames[contentLength]):
				f.lengths.Add(1)
			case isName(name, headerNames[transferEncoding]):
				f.encodings.Add(1)
			}
		}
		f.n, p = 0, rest
	}
}

// ends reports whether the connection of a request must end with its answer. It is called once for each request.
func (f *framing) ends(r *http.Request) bool {
	chunked := len(r.TransferEncoding) > 0
	if chunked {
		f.knownEncodings++
	}
	if r.Header[headerNames[contentLength]] != nil {
		f.knownLengths++
	}
	if chunked {
		return f.lengths.Load() > f.knownLengths
	}
	// net/http ignores the Transfer-Encoding of HTTP/1.0.
	return !r.ProtoAtLeast(1, 1) && f.encodings.Load() > f.knownEncodings
}

type framingKey struct{}

// ConnContext is that of a connection which net/http serves, for [EndsConnection].
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(interface{ framing() *framing }); ok {
		return context.WithValue(ctx, framingKey{}, c.framing())
	}
	return ctx
}

// EndsConnection reports whether the connection of a request must end with its answer, for how the request is framed. If the
// connection is not one of a [Loop], that holds for every request that may have had both headers.
func EndsConnection(r *http.Request) bool {
	if r.ProtoMajor != 1 {
		return false
	}
	if f := framingOf(r.Context()); f != nil {
		return f.ends(r)
	}
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1)
}

func framingOf(ctx context.Context) *framing {
	f, _ := ctx.Value(framingKey{}).(*framing)
	return f
}
