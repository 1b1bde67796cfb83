package http1

import (
	"bytes"
	"time"
)

// Names of headers that only say how a call is named in the log, and to which trace it belongs.
const (
	RequestIDHeader   = "X-Request-Id"
	TraceParentHeader = "Traceparent"
)

const (
	// noTimeout says that the caller gives no timeout.
	noTimeout time.Duration = -1
	// maxBodyBytes is the largest body of a plain call. It bounds the memory that a client can have
	// allocated by a head alone.
	maxBodyBytes = 64 << 10
)

// header is a header that the parser knows.
type header int

const (
	// The headers up to authorization decide how a call is answered. Connect's handler looks at the
	// same ones.
	contentType header = iota
	contentEncoding
	acceptEncoding
	protocolVersion
	timeoutMillis
	authorization
	// The headers up to origin decide where a request ends, what becomes of its connection, and
	// whether net/http must see the request.
	host
	contentLength
	connection
	transferEncoding
	expect
	upgrade
	http2Settings
	trailer
	origin
	// The next two change nothing in the answer.
	requestID
	traceParent
	// otherHeader is any other header. It changes nothing.
	otherHeader
)

// headerNames are the names as net/http spells them.
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
	requestID:        RequestIDHeader,
	traceParent:      TraceParentHeader,
}

// verdict is what the parser says of the bytes that have arrived.
type verdict int

const (
	// plainHead means that the bytes begin with the whole head of a plain call.
	plainHead verdict = iota
	// incompleteHead means that the bytes may become one.
	incompleteHead
	// notPlain means anything else: a malformed request, and a good one that the loop does not
	// answer.
	notPlain
)

// Head is the head of a plain call. The slices are parts of the bytes that were parsed, and only
// valid as long as those.
type Head struct {
	Path, Host, Authorization []byte
	// RequestID and TraceParent are the first values of these headers, or nil.
	RequestID, TraceParent []byte
	// BodyBytes is the length of the body.
	BodyBytes int

	// bytes is the length of the head.
	bytes int
	// timeout is that of the caller, or noTimeout.
	timeout time.Duration
	// acceptsGzip says that the answer may be compressed.
	acceptsGzip bool
	// seen has bit 1<<h for each header h that occurred.
	seen uint16
}

const (
	linePrefix = "POST "
	lineSuffix = " HTTP/1.1"
)

// parse parses the head of a request. It accepts one spelling only, see the package documentation.
// net/http reads each request that parse accepts in the same way, byte for byte (FuzzHead), so it
// does not matter which of the two has read a request.
func (h *Head) parse(b []byte) verdict {
	*h = Head{timeout: noTimeout, BodyBytes: -1}

	// A request that can no longer become plain is passed on at once, and not when its first line
	// is complete.
	line, length, v := cutLine(b)
	if !hasLinePrefix(b) {
		return notPlain
	}
	if v != plainHead {
		return v
	}
	if !bytes.HasSuffix(line, []byte(lineSuffix)) || len(line) < len(linePrefix)+len(lineSuffix) {
		return notPlain
	}
	h.Path = line[len(linePrefix) : len(line)-len(lineSuffix)]

	for h.bytes = length; ; h.bytes += length {
		line, length, v = cutLine(b[h.bytes:])
		if v != plainHead {
			return v
		}
		if len(line) == 0 {
			h.bytes += length
			return h.checkComplete()
		}
		if !h.parseHeader(line) {
			return notPlain
		}
	}
}

// hasLinePrefix reports whether b begins with linePrefix, or is the beginning of it.
func hasLinePrefix(b []byte) bool {
	n := min(len(b), len(linePrefix))
	return string(b[:n]) == linePrefix[:n]
}

// cutLine returns the first line without its CR LF, and the length of the line with it. v is
// notPlain if the line ends otherwise, and incompleteHead if it does not end.
func cutLine(b []byte) (line []byte, length int, v verdict) {
	switch i := bytes.IndexByte(b, '\n'); {
	case i < 0:
		return nil, 0, incompleteHead
	case i == 0 || b[i-1] != '\r':
		return nil, 0, notPlain
	default:
		return b[:i-1], i + 1, plainHead
	}
}

// checkComplete judges the head when all of it was parsed.
func (h *Head) checkComplete() verdict {
	// A timeout of 0 has passed already, and Connect's handler says so.
	if !h.has(contentType) || !h.has(host) || h.BodyBytes < 0 || h.timeout == 0 {
		return notPlain
	}
	return plainHead
}

// parseHeader parses the line of a header. It returns false if the header is malformed, or makes
// the request not plain.
func (h *Head) parseHeader(line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	name := line[:colon]
	value := trimSpace(line[colon+1:])
	for _, c := range name {
		if !isTokenByte(c) {
			return false
		}
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return h.applyHeader(lookUpHeader(name), value)
}

// applyHeader takes a header into account. It returns false if the header makes the request not
// plain.
func (h *Head) applyHeader(name header, value []byte) bool {
	switch name {
	case otherHeader:
		return true
	case requestID:
		if h.RequestID == nil {
			h.RequestID = value
		}
		return true
	case traceParent:
		if h.TraceParent == nil {
			h.TraceParent = value
		}
		return true
	case host:
		h.Host = value
		return h.markSeen(host) && isHost(value)
	case contentLength:
		// There is one spelling of a number: no sign, no leading zero, no second number.
		n, ok := parseDecimal(string(value), 5)
		if !ok || n > maxBodyBytes || len(value) > 1 && value[0] == '0' || !h.markSeen(contentLength) {
			return false
		}
		h.BodyBytes = int(n)
		return true
	case connection:
		return h.markSeen(connection) && equalFold(value, "keep-alive")
	case transferEncoding, expect, upgrade, http2Settings, trailer, origin:
		return false
	case authorization:
		h.Authorization = value
		return h.markSeen(authorization) // not below: a string of a token would be allocated
	}
	return h.applyCallHeader(name, string(value))
}

// applyCallHeader takes a header up to authorization into account. Connect's handler looks at no
// other headers of a POST. None of them may occur twice.
func (h *Head) applyCallHeader(name header, value string) bool {
	if !h.markSeen(name) {
		return false
	}
	switch name {
	case contentType:
		return value == "application/proto"
	case contentEncoding:
		return value == ""
	case protocolVersion:
		return value == "" || value == "1"
	case acceptEncoding:
		h.acceptsGzip = value == "gzip"
		return h.acceptsGzip || value == "" || value == "identity"
	case timeoutMillis:
		if value == "" {
			return true
		}
		millis, ok := parseDecimal(value, 10)
		h.timeout = time.Duration(millis) * time.Millisecond
		return ok
	}
	return true
}

// markSeen notes that a header occurred. It returns false if the header occurred before.
func (h *Head) markSeen(name header) bool {
	if h.has(name) {
		return false
	}
	h.seen |= 1 << name
	return true
}

func (h *Head) has(name header) bool { return h.seen&(1<<name) != 0 }

// lookUpHeader returns the header of a name.
func lookUpHeader(name []byte) header {
	for h, known := range headerNames {
		if equalFold(name, known) {
			return header(h)
		}
	}
	return otherHeader
}

// trimSpace returns a value without the spaces and tabs around it. Unlike bytes.TrimSpace it leaves
// all other characters.
func trimSpace(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t') {
		v = v[1:]
	}
	for len(v) > 0 && (v[len(v)-1] == ' ' || v[len(v)-1] == '\t') {
		v = v[:len(v)-1]
	}
	return v
}

// equalFold compares ASCII without regard to case. Unlike bytes.EqualFold it knows no letters
// beyond ASCII.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if c != s[i] && toLower(c) != toLower(s[i]) {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isTokenByte reports whether a byte may be part of the name of a header.
func isTokenByte(c byte) bool {
	switch c {
	case '-', '!', '#', '$', '%', '&', '\'', '*', '+', '.', '^', '_', '`', '|', '~':
		return true
	}
	return isAlphanumeric(c)
}

// isHost reports whether a value is a name or an address, with or without a port. net/http takes more than these.
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

// parseDecimal parses a number of at most maxDigits decimal digits, and nothing else.
func parseDecimal(v string, maxDigits int) (n uint64, ok bool) {
	if v == "" || len(v) > maxDigits {
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
