package http1test

import "strings"

const (
	// MethodPath is the path of the method that the requests call.
	MethodPath = "/skein.v1.GraphService/CheckFollows"

	plainLines = "Host: x\r\nContent-Type: application/proto\r\nContent-Length: 3\r\n"
	plainStart = "POST " + MethodPath + " HTTP/1.1\r\n" + plainLines
)

// PlainRequests are requests that the loop answers. The first four call [MethodPath].
var PlainRequests = []string{
	plainStart + "\r\nabc",
	plainStart + "Connect-Protocol-Version: 1\r\nConnect-Timeout-Ms: 10000\r\nAccept-Encoding: gzip\r\nUser-Agent: a (b; c) \"d\"\r\n\r\nabc",
	plainStart + "Authorization: Bearer abc.def\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n\r\nabcPOST ",
	plainStart + "Content-Encoding:\r\nconnect-protocol-version:\r\nCONNECT-TIMEOUT-MS:\r\naccept-encoding: \t \r\nX:\ta\t b \t\r\n\r\nabc",
	"POST / HTTP/1.1\r\nhOST:[::1]:80\r\ncontent-TYPE:application/proto\r\nCONTENT-length:65536\r\n!#$%&'*+-.^_`|~09azAZ: ~\r\n\r\n",
	"POST /x HTTP/1.1\r\nContent-Length: 0\r\nContent-Type: application/proto\r\nHost: a-b_c.d:1\r\nTE: trailers\r\nKeep-Alive: 5\r\n\r\n",
}

// OddRequests are left to net/http, which refuses some and answers others.
var OddRequests = []string{
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
	"POST " + MethodPath + " HTTP/1.0\r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + " HTTP/1.10\r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + " HTTP/2.0\r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + " HTTP/0.9\r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + " http/1.1\r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + " HTTP/1.1 \r\n" + plainLines + "\r\nabc",
	"POST " + MethodPath + "\r\n" + plainLines + "\r\nabc",
	"POST HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POST\r\n" + plainLines + "\r\nabc",
	"post " + MethodPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POSTS " + MethodPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"POST\t" + MethodPath + " HTTP/1.1\r\n" + plainLines + "\r\nabc",
	"GET " + MethodPath + "?connect=v1&encoding=json&message=%7B%7D HTTP/1.1\r\nHost: x\r\n\r\n",
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
