package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	checkPath = "/skein.v1.GraphService/CheckFollows"
	// plainLines are the headers of a plain request.
	plainLines = "Host: x\r\nContent-Type: application/proto\r\nContent-Length: 3\r\n"
	plainStart = "POST " + checkPath + " HTTP/1.1\r\n" + plainLines
)

// plainHeads are taken.
var plainHeads = []string{
	plainStart + "\r\nabc",
	plainStart + "Connect-Protocol-Version: 1\r\nConnect-Timeout-Ms: 10000\r\nAccept-Encoding: gzip\r\nUser-Agent: a (b; c) \"d\"\r\n\r\nabc",
	plainStart + "Authorization: Bearer abc.def\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n\r\nabcPOST ",
	plainStart + "Content-Encoding:\r\nconnect-protocol-version:\r\nCONNECT-TIMEOUT-MS:\r\naccept-encoding: \t \r\nX:\ta\t b \t\r\n\r\nabc",
	"POST / HTTP/1.1\r\nhOST:[::1]:80\r\ncontent-TYPE:application/proto\r\nCONTENT-length:65536\r\n!#$%&'*+-.^_`|~09azAZ: ~\r\n\r\n",
	"POST /x HTTP/1.1\r\nContent-Length: 0\r\nContent-Type: application/proto\r\nHost: a-b_c.d:1\r\nTE: trailers\r\nKeep-Alive: 5\r\n\r\n",
}

// oddHeads are left to net/http, which refuses some and takes others.
var oddHeads = []string{
	// Where the body ends, said twice or not plainly.
	plainStart + "Content-Length: 3\r\n\r\nabc",
	plainStart + "Content-Length: 30\r\n\r\nabc",
	plainStart + "content-length: 3\r\n\r\nabc",
	plainStart + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	plainStart + "transfer-encoding: identity\r\n\r\nabc",
	plainStart + "Transfer-Encoding:\r\n\r\nabc",
	strings.Replace(plainStart, "Content-Length: 3", "Transfer-Encoding: chunked", 1) + "\r\n3\r\nabc\r\n0\r\n\r\n",
	strings.Replace(plainStart, "Content-Length: 3\r\n", "", 1) + "\r\n",
	strings.Replace(plainStart, ": 3", ": +3", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": -3", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 3 0", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 3, 3", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 03", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 0x3", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 3\x00", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ":", 1) + "\r\nabc",
	strings.Replace(plainStart, ": 3", ": 99999999999999999999", 1) + "\r\nabc",
	strings.Replace(plainStart, "Content-Length:", "Content-Length :", 1) + "\r\nabc",
	strings.Replace(plainStart, "Content-Length:", "Content_Length:", 1) + "\r\nabc",
	// What becomes of the connection.
	plainStart + "Connection: close\r\n\r\nabc",
	plainStart + "Connection: keep-alive\r\nConnection: close\r\n\r\nabc",
	plainStart + "Connection: keep-alive, close\r\n\r\nabc",
	plainStart + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\nabc",
	plainStart + "Upgrade: websocket\r\n\r\nabc",
	plainStart + "Expect: 100-continue\r\n\r\nabc",
	plainStart + "Expect: something\r\n\r\nabc",
	plainStart + "Trailer: X\r\n\r\nabc",
	// Lines.
	strings.ReplaceAll(plainStart, "\r\n", "\n") + "\nabc",
	strings.Replace(plainStart, "Host: x\r\n", "Host: x\n", 1) + "\r\nabc",
	plainStart + "\nabc",
	plainStart + "X: a\r\n b\r\n\r\nabc",
	plainStart + "X: a\r\n\tb: c\r\n\r\nabc",
	plainStart + " X: a\r\n\r\nabc",
	plainStart + "X: a\rb\r\n\r\nabc",
	plainStart + "X: a\r\r\n\r\nabc",
	plainStart + "X\r\n\r\nabc",
	plainStart + ": a\r\n\r\nabc",
	plainStart + "X : a\r\n\r\nabc",
	plainStart + "X\t: a\r\n\r\nabc",
	plainStart + "X\x00: a\r\n\r\nabc",
	plainStart + "X: a\x00\r\n\r\nabc",
	plainStart + "X: \x7f\r\n\r\nabc",
	plainStart + "X: \xe4\r\n\r\nabc",
	plainStart + "X(y): a\r\n\r\nabc",
	"\r\n" + plainStart + "\r\nabc",
	"\n" + plainStart + "\r\nabc",
	" " + plainStart + "\r\nabc",
	// The first line.
	"POST " + checkPath + " HTTP/1.0\r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + " HTTP/1.10\r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + " HTTP/2.0\r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + " HTTP/0.9\r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + " http/1.1\r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + " HTTP/1.1 \r\n" + plainLines + "\r\nabc",
	"POST " + checkPath + "\r\n" + plainLines + "\r\nabc",
	"POST HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POST\r\n" + plainLines + "\r\nabc",
	"post " + checkPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POSTS " + checkPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POST\t" + checkPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"GET " + checkPath + "?connect=v1&encoding=json&message=%7B%7D HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
	"hello\n",
	// To whom.
	strings.Replace(plainStart, "Host: x\r\n", "", 1) + "\r\nabc",
	strings.Replace(plainStart, "Host: x", "Host:", 1) + "\r\nabc",
	strings.Replace(plainStart, "Host: x", "Host: x y", 1) + "\r\nabc",
	strings.Replace(plainStart, "Host: x", "Host: a@b/c", 1) + "\r\nabc",
	plainStart + "Host: x\r\n\r\nabc",
	plainStart + "host: y\r\n\r\nabc",
	// What else a plain call is not.
	strings.Replace(plainStart, "/proto", "/json", 1) + "\r\n{} ",
	strings.Replace(plainStart, "/proto", "/proto; x=y", 1) + "\r\nabc",
	strings.Replace(plainStart, "Content-Type: application/proto\r\n", "", 1) + "\r\nabc",
	plainStart + "Content-Type: application/proto\r\n\r\nabc",
	plainStart + "Content-Encoding: identity\r\n\r\nabc",
	plainStart + "Accept-Encoding: gzip, br\r\n\r\nabc",
	plainStart + "Accept-Encoding: gzip\r\nAccept-Encoding: gzip\r\n\r\nabc",
	plainStart + "Connect-Protocol-Version: 2\r\n\r\nabc",
	plainStart + "Connect-Timeout-Ms: 0\r\n\r\nabc",
	plainStart + "Connect-Timeout-Ms: +10000\r\n\r\nabc",
	plainStart + "Connect-Timeout-Ms: 12345678901\r\n\r\nabc",
	plainStart + "Authorization: a\r\nAuthorization: b\r\n\r\nabc",
}

// What is plain is known by its head, and by each part of it that may come first.
func TestHead(t *testing.T) {
	for _, text := range plainHeads {
		var h head
		if v := h.parse([]byte(text)); v != plainHead {
			t.Errorf("%q is left to net/http", text)
		}
		readsTheSame(t, []byte(text), &h)
	}
	for _, text := range oddHeads {
		var h head
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
func readsTheSame(t *testing.T, data []byte, h *head) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(data))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	c, ok := plainOf(r)
	// Headers that say where the request ends are net/http's alone.
	h.call.seen &= 1<<(authorization+1) - 1
	if !ok || c != h.call || authorizationOf(r) != string(h.authorization) {
		t.Fatalf("%q: %+v, net/http: %+v %v", data, h.call, c, ok)
	}
	if r.RequestURI != string(h.path) || r.URL.Path != string(h.path) && !bytes.ContainsAny(h.path, "%?") ||
		r.Proto != "HTTP/1.1" || r.Close || r.Host == "" ||
		len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.Header.Get("Expect") != "" {
		t.Fatalf("%q: %+v", data, r)
	}
	body, err := io.ReadAll(r.Body)
	if r.ContentLength != int64(h.body) || len(body) != min(h.body, len(data)-h.bytes) || err == nil != (len(body) == h.body) {
		t.Fatalf("%q: a body of %d: %d %v", data, h.body, len(body), err)
	}
	rest, _ := io.ReadAll(in)
	if want := data[h.bytes+len(body):]; !bytes.Equal(rest, want) {
		t.Fatalf("%q: goes on with %q, want %q", data, rest, want)
	}
	for i := range h.bytes {
		var half head
		if v := half.parse(data[:i]); v != halfHead {
			t.Fatalf("%q: %v", data[:i], v)
		}
	}
}

// Of what is taken, net/http reads the same, to the byte.
func FuzzHead(f *testing.F) {
	for _, text := range append(plainHeads, oddHeads...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h head
		// A path is one of ours, letter by letter, before anything is answered.
		if h.parse(data) == plainHead && strings.Trim(string(h.path), "/.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" &&
			strings.HasPrefix(string(h.path), "/") {
			readsTheSame(t, data, &h)
		}
	})
}
