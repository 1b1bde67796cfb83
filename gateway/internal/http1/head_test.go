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

// What is plain is known by its head, and by each part of it that may come first.
func TestHead(t *testing.T) {
	for _, text := range http1test.PlainRequests {
		var h Head
		if v := h.parse([]byte(text)); v != plainHead {
			t.Errorf("%q is left to net/http", text)
		}
		readsTheSame(t, []byte(text), &h)
	}
	for _, text := range http1test.OddRequests {
		var h Head
		if v := h.parse([]byte(text)); v != notPlain {
			t.Errorf("%q: %v", text, v)
		}
	}
}

// plainOf reports whether a call that net/http has read is plain.
func plainOf(r *http.Request) (c plainCall, ok bool) {
	if r.Method != http.MethodPost || r.ProtoMajor != 1 || r.ContentLength < 0 || r.ContentLength > maxPlainBody {
		return c, false
	}
	c.timeout = noTimeout
	for h := contentType; h <= authorization; h++ {
		for _, v := range r.Header[headerNames[h]] {
			if !c.take(h, v) {
				return c, false
			}
		}
	}
	return c, c.has(contentType)
}

// readsTheSame demands that net/http reads of a request what was read of it.
func readsTheSame(t *testing.T, data []byte, h *Head) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(data))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	c, ok := plainOf(r)
	// Headers that say where the request ends are net/http's alone.
	h.call.seen &= 1<<(authorization+1) - 1
	if !ok || c != h.call || strings.Join(r.Header["Authorization"], ", ") != string(h.Authorization) {
		t.Fatalf("%q: %+v, net/http: %+v %v", data, h.call, c, ok)
	}
	if r.RequestURI != string(h.Path) || r.URL.Path != string(h.Path) && !bytes.ContainsAny(h.Path, "%?") ||
		r.Proto != "HTTP/1.1" || r.Close || r.Host == "" ||
		len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.Header.Get("Expect") != "" {
		t.Fatalf("%q: %+v", data, r)
	}
	body, err := io.ReadAll(r.Body)
	if r.ContentLength != int64(h.BodyBytes) || len(body) != min(h.BodyBytes, len(data)-h.bytes) || err == nil != (len(body) == h.BodyBytes) {
		t.Fatalf("%q: a body of %d: %d %v", data, h.BodyBytes, len(body), err)
	}
	rest, _ := io.ReadAll(in)
	if want := data[h.bytes+len(body):]; !bytes.Equal(rest, want) {
		t.Fatalf("%q: goes on with %q, want %q", data, rest, want)
	}
	for i := range h.bytes {
		var half Head
		if v := half.parse(data[:i]); v != halfHead {
			t.Fatalf("%q: %v", data[:i], v)
		}
	}
}

// Of what is taken, net/http reads the same, to the byte.
func FuzzHead(f *testing.F) {
	for _, text := range slices.Concat(http1test.PlainRequests, http1test.OddRequests) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Head
		// A path is one of ours, letter by letter, before anything is answered.
		if h.parse(data) == plainHead && strings.Trim(string(h.Path), "/.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" &&
			strings.HasPrefix(string(h.Path), "/") {
			readsTheSame(t, data, &h)
		}
	})
}
