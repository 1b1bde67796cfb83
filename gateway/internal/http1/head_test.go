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

// TestOnlyPlainHeadsAreAccepted checks that the head of a plain call is accepted, that each proper
// beginning of it is incomplete, and that everything else is not plain.
func TestOnlyPlainHeadsAreAccepted(t *testing.T) {
	t.Run("plain requests", func(t *testing.T) {
		for _, text := range http1test.PlainRequests {
			var h Head
			if got := h.parse([]byte(text)); got != plainHead {
				t.Errorf("parse(%q): got %v, want plainHead", text, got)
			}
			mustReadLikeNetHTTP(t, []byte(text), &h)
		}
	})
	t.Run("other requests", func(t *testing.T) {
		for _, text := range http1test.OddRequests {
			var h Head
			if got := h.parse([]byte(text)); got != notPlain {
				t.Errorf("parse(%q): got %v, want notPlain", text, got)
			}
		}
	})
}

// headOf returns what a request that net/http has read says about its call: the timeout, whether
// the answer may be compressed, and which headers there were. ok is false if the call is not plain.
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

// mustReadLikeNetHTTP stops the test unless net/http reads a request in the same way as the parser,
// which has read the head h from data.
func mustReadLikeNetHTTP(t *testing.T, data []byte, h *Head) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(data))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q: got the error %v from net/http, want none", data, err)
	}

	// headOf knows only the headers up to authorization, which decide how a call is answered. So
	// the bits of the others are removed.
	callHeaders := h.seen & (1<<(authorization+1) - 1)
	want, isPlain := headOf(r)
	if !isPlain || h.timeout != want.timeout || h.acceptsGzip != want.acceptsGzip || callHeaders != want.seen {
		t.Fatalf("head of %q: got %+v, want %+v as from net/http (plain: %t)", data, h, want, isPlain)
	}
	if want := strings.Join(r.Header["Authorization"], ", "); string(h.Authorization) != want {
		t.Fatalf("authorization of %q: got %q, want %q as from net/http", data, h.Authorization, want)
	}

	// The decoded path may only differ if there is something to decode or a query.
	if string(h.Path) != r.RequestURI {
		t.Fatalf("path of %q: got %q, want %q as from net/http", data, h.Path, r.RequestURI)
	}
	if string(h.Path) != r.URL.Path && !bytes.ContainsAny(h.Path, "%?") {
		t.Fatalf("path of %q: got %q, want %q as decoded by net/http", data, h.Path, r.URL.Path)
	}
	if r.Proto != "HTTP/1.1" || r.Close || r.Host == "" ||
		len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.Header.Get("Expect") != "" {
		t.Fatalf("%q: net/http reads %+v, want a plain call of HTTP/1.1", data, r)
	}

	// The request ends at the same byte. data may end before the body does, and then net/http
	// returns an error.
	body, err := io.ReadAll(r.Body)
	availableBytes := min(h.BodyBytes, len(data)-h.bytes)
	isWhole := len(body) == h.BodyBytes
	if int64(h.BodyBytes) != r.ContentLength || len(body) != availableBytes || (err == nil) != isWhole {
		t.Fatalf("body of %q: got %d bytes, net/http has read %d of %d with the error %v", data, h.BodyBytes, len(body), r.ContentLength, err)
	}
	rest, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := data[h.bytes+len(body):]; !bytes.Equal(rest, want) {
		t.Fatalf("%q: net/http continues with %q, want %q", data, rest, want)
	}

	for i := range h.bytes {
		var beginning Head
		if got := beginning.parse(data[:i]); got != incompleteHead {
			t.Fatalf("parse(%q): got %v, want incompleteHead", data[:i], got)
		}
	}
}

// FuzzHead checks that net/http reads each request that the parser accepts in the same way, to the
// byte.
func FuzzHead(f *testing.F) {
	for _, text := range slices.Concat(http1test.PlainRequests, http1test.OddRequests) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Head
		if h.parse(data) != plainHead {
			return
		}

		// net/http refuses some paths that the parser accepts. That does not matter, because a
		// session admits only the paths of methods. So only paths of such characters are compared.
		const pathCharacters = "/.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		path := string(h.Path)
		if strings.HasPrefix(path, "/") && strings.Trim(path, pathCharacters) == "" {
			mustReadLikeNetHTTP(t, data, &h)
		}
	})
}
