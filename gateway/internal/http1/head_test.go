package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
)

// TestOnlyPlainHeadsAreAccepted demands that the head of a plain call is accepted, that each proper
// beginning of it is incomplete, and that everything else is not plain.
func TestOnlyPlainHeadsAreAccepted(t *testing.T) {
	t.Run("plain requests", func(t *testing.T) {
		for _, text := range http1test.PlainRequests {
			var h Head
			if got := h.parse([]byte(text)); got != plainHead {
				t.Errorf("%q: got %v, expected plainHead", text, got)
			}
			demandSameAsNetHTTP(t, []byte(text), &h)
		}
	})
	t.Run("other requests", func(t *testing.T) {
		for _, text := range http1test.OddRequests {
			var h Head
			if got := h.parse([]byte(text)); got != notPlain {
				t.Errorf("%q: got %v, expected notPlain", text, got)
			}
		}
	})
}

// headOf returns what a request that net/http has read says of its call. ok is false if the call is
// not plain.
func headOf(r *http.Request) (h Head, ok bool) {
	h.timeout = noTimeout
	if r.Method != http.MethodPost || r.ProtoMajor != 1 || r.ContentLength < 0 || r.ContentLength > maxBodyBytes {
		return h, false
	}
	for name := contentType; name <= authorization; name++ {
		for _, v := range r.Header[headerNames[name]] {
			if !h.applyCallHeader(name, v) {
				return h, false
			}
		}
	}
	return h, h.has(contentType)
}

// demandSameAsNetHTTP fails the test unless net/http reads a request as the parser did.
func demandSameAsNetHTTP(t *testing.T, data []byte, h *Head) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(data))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q: net/http: %v", data, err)
	}

	// Headers behind authorization are not of the call, but of the request.
	seen := h.seen & (1<<(authorization+1) - 1)
	expected, ok := headOf(r)
	if !ok || expected.timeout != h.timeout || expected.acceptsGzip != h.acceptsGzip || expected.seen != seen ||
		strings.Join(r.Header["Authorization"], ", ") != string(h.Authorization) {
		t.Fatalf("%q: got %+v, expected %+v, which is plain: %v", data, h, expected, ok)
	}
	if r.RequestURI != string(h.Path) || r.URL.Path != string(h.Path) && !bytes.ContainsAny(h.Path, "%?") {
		t.Fatalf("%q: got the path %q, net/http reads %q, %q", data, h.Path, r.RequestURI, r.URL.Path)
	}
	if r.Proto != "HTTP/1.1" || r.Close || r.Host == "" ||
		len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.Header.Get("Expect") != "" {
		t.Fatalf("%q: expected a plain call of HTTP/1.1, net/http reads %+v", data, r)
	}

	// The request ends at the same byte.
	body, err := io.ReadAll(r.Body)
	if r.ContentLength != int64(h.BodyBytes) || len(body) != min(h.BodyBytes, len(data)-h.bytes) || err == nil != (len(body) == h.BodyBytes) {
		t.Fatalf("%q: got a body of %d bytes, net/http reads %d: %v", data, h.BodyBytes, len(body), err)
	}
	rest, _ := io.ReadAll(in)
	if expected := data[h.bytes+len(body):]; !bytes.Equal(rest, expected) {
		t.Fatalf("%q: net/http continues with %q, expected %q", data, rest, expected)
	}

	// Each proper beginning of the head is incomplete.
	for i := range h.bytes {
		var part Head
		if got := part.parse(data[:i]); got != incompleteHead {
			t.Fatalf("%q: got %v, expected incompleteHead", data[:i], got)
		}
	}
}

// FuzzHead demands that net/http reads each request that the parser accepts in the same way, to the
// byte.
func FuzzHead(f *testing.F) {
	for _, text := range slices.Concat(http1test.PlainRequests, http1test.OddRequests) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Head
		// Nothing is answered unless the path is one of the server's, letter by letter.
		if h.parse(data) == plainHead && strings.Trim(string(h.Path), "/.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" &&
			strings.HasPrefix(string(h.Path), "/") {
			demandSameAsNetHTTP(t, data, &h)
		}
	})
}
