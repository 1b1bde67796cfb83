package http1

import (
	"bytes"
	"time"
)

// header is a header that decides whether a call is plain.
type header int

// The headers up to authorization decide how a plain call is answered, whichever way it came. Those after it say where a
// request ends and what becomes of its connection, which net/http sees to for what it has read.
const (
	contentType header = iota
	contentEncoding
	acceptEncoding
	protocolVersion
	timeoutMillis
	authorization
	host
	contentLength
	connection
	transferEncoding
	expect
	upgrade
	http2Settings
	trailer
	origin
	// callID only says how the call is named in the log.
	callID
	// traceParent is the trace of who follows the call.
	traceParent
	// anyHeader is any other header. It changes nothing.
	anyHeader
)

// headerNames are as net/http spells them.
var headerNames = [...]string{
	contentType:      "Content-Type",
	contentEncoding:  "Content-Encoding",
	acceptEncoding:   "Accept-Encoding",
	protocolVersion:  "Connect-Protocol-Version",
	timeoutMillis:    "Connect-Timeout-Ms",
	authorization:    "Authorization",
	host:             "Host",
	contentLength:    "Content-Length",
	connection:       "Connection",
	transferEncoding: "Transfer-Encoding",
	expect:           "Expect",
	upgrade:          "Upgrade",
	http2Settings:    "Http2-Settings",
	trailer:          "Trailer",
	origin:           "Origin",
	callID:           RequestIDHeader,
	traceParent:      TraceParentHeader,
}

// Headers that only say how a call is named in the log, and of which trace it is.
const (
	RequestIDHeader   = "X-Request-Id"
	TraceParentHeader = "Traceparent"
)

// verdict is what the parser says of the bytes that have come.
type verdict int

const (
	// plainHead is a whole head of a plain request.
	plainHead verdict = iota
	// halfHead may become one.
	halfHead
	// notPlain is everything else: what is wrong as well as what is only not known here.
	notPlain
)

// Head is the head of a plain request. The slices are parts of what was parsed.
type Head struct {
	Path          []byte
	Host          []byte
	Authorization []byte
	// RequestID is how the caller has named the call, the first time that it says so.
	RequestID []byte
	// TraceParent is the trace that the call is of, for its caller.
	TraceParent []byte
	call        plainCall
	// bytes is the length of the head.
	bytes int
	// BodyBytes is the length of the body behind it.
	BodyBytes int
}

// A plain call is a unary call as nearly all of them are: the Connect protocol over HTTP/1.1, binary, not compressed, of
// a known and small length. It is answered here, in the way that Connect's own handler would, which costs more than a point
// read (docs/decisions/0017). Whatever is not plain goes to that handler as it came, and so does a plain call that
// fails before its method was asked: what is answered here is a result, or an error of the method itself.
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

const (
	beforePath = "POST "
	afterPath  = " HTTP/1.1"
)

// parse reads the head of a request. It takes one way of writing a request only, and knows no tolerance: each line ends
// with CR LF, a name is a token and stands directly before its colon, a value is printable ASCII. Of a request that it
// takes net/http reads the same, byte for byte (FuzzHead), so nothing depends on who has read it.
func (h *Head) parse(b []byte) verdict {
	*h = Head{call: plainCall{timeout: noTimeout}, BodyBytes: -1}
	line, n, v := lineOf(b)
	if v != plainHead {
		if !startsPlain(b) {
			return notPlain
		}
		return v
	}
	if !startsPlain(line) || !bytes.HasSuffix(line, []byte(afterPath)) || len(line) < len(beforePath)+len(afterPath) {
		return notPlain
	}
	h.Path = line[len(beforePath) : len(line)-len(afterPath)]
	for h.bytes = n; ; h.bytes += n {
		if line, n, v = lineOf(b[h.bytes:]); v != plainHead {
			return v
		}
		if len(line) == 0 {
			h.bytes += n
			return h.whole()
		}
		if !h.line(line) {
			return notPlain
		}
	}
}

// startsPlain reports whether bytes are, or may become, the first line of a plain request.
func startsPlain(b []byte) bool {
	n := min(len(b), len(beforePath))
	return string(b[:n]) == beforePath[:n]
}

// lineOf returns the first line without its end, and its length with it.
func lineOf(b []byte) (line []byte, n int, v verdict) {
	switch i := bytes.IndexByte(b, '\n'); {
	case i < 0:
		return nil, 0, halfHead
	case i == 0 || b[i-1] != '\r':
		return nil, 0, notPlain
	default:
		return b[:i-1], i + 1, plainHead
	}
}

// whole judges the head when all of it has come.
func (h *Head) whole() verdict {
	c := &h.call
	if !c.has(contentType) || !c.has(host) || h.BodyBytes < 0 || c.timeout == 0 {
		return notPlain
	}
	return plainHead
}

// line takes the line of a header, and reports whether it is plain.
func (h *Head) line(line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	name, value := line[:colon], trimmed(line[colon+1:])
	for _, c := range name {
		if !isToken(c) {
			return false
		}
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return h.take(headerOf(name), value)
}

// trimmed is a value without the white space around it.
func trimmed(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t') {
		v = v[1:]
	}
	for len(v) > 0 && (v[len(v)-1] == ' ' || v[len(v)-1] == '\t') {
		v = v[:len(v)-1]
	}
	return v
}

// take judges a header.
func (h *Head) take(name header, value []byte) bool {
	switch name {
	case anyHeader:
		return true
	case callID:
		if h.RequestID == nil {
			h.RequestID = value
		}
		return true
	case traceParent:
		if h.TraceParent == nil {
			h.TraceParent = value
		}
		return true
	case authorization:
		h.Authorization = value
		return h.call.first(authorization)
	case host:
		h.Host = value
		return h.call.first(host) && isHost(value)
	case contentLength:
		// One way to write a number: no sign, no zero before it, nothing beside it.
		n, ok := number(string(value), 5)
		if !ok || n > maxPlainBody || len(value) > 1 && value[0] == '0' || !h.call.first(contentLength) {
			return false
		}
		h.BodyBytes = int(n)
		return true
	case connection:
		return h.call.first(connection) && isName(value, "keep-alive")
	case transferEncoding, expect, upgrade, http2Settings, trailer, origin:
		return false
	}
	return h.call.take(name, string(value))
}

func headerOf(name []byte) header {
	for h, known := range headerNames {
		if isName(name, known) {
			return header(h)
		}
	}
	return anyHeader
}

// isName compares without regard to case. The name has letters, digits and hyphens only, and b no control characters.
func isName(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if c != name[i] && (lower(c) != lower(name[i])) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isHost reports whether a value is a name or an address, perhaps with a port. net/http takes more than these.
func isHost(v []byte) bool {
	for _, c := range v {
		switch c {
		case '.', '-', '_', ':', '[', ']':
		default:
			if !isAlphanumeric(c) {
				return false
			}
		}
	}
	return len(v) > 0
}

func isToken(c byte) bool {
	switch c {
	case '-', '!', '#', '$', '%', '&', '\'', '*', '+', '.', '^', '_', '`', '|', '~':
		return true
	}
	return isAlphanumeric(c)
}

// number reads decimal digits, and nothing else, at most so many.
func number(v string, most int) (n uint64, ok bool) {
	if v == "" || len(v) > most {
		return 0, false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		n = 10*n + uint64(v[i]-'0')
	}
	return n, true
}
