// Package http1 answers the most frequent calls of the API without net/http, and leaves everything
// else to net/http.
//
// A call of a small method costs less than what net/http does for it: a request object, a map of
// headers, goroutines, buffers and timers. So each connection begins in a loop of this package, in
// one goroutine:
//
//	accept ─▶ TLS handshake ─▶ read a head ─▶ plain, and admitted? ─ yes ─▶ read the body ─▶ answer ─▶ write ─┐
//	                             ▲                │ no, or in doubt           │ it does not come            │
//	                             │                ▼                           ▼                             │
//	                             │            pass the connection to net/http, with all unanswered bytes    │
//	                             └───────────────────────────────────────────────────────────────────────────┘
//
// The loop knows the server behind it only as a [Session] per connection.
// docs/decisions/0017-http-loop.md has the measurements.
//
// # What the loop answers itself
//
// Plain calls: a POST over HTTP/1.1 of the Connect protocol, with a binary message that is not
// compressed, and a body of known length up to 64 KiB. The session must also admit the call: it
// knows the path, the Host is allowed, the caller is authenticated, and there is memory for the
// body. The answer is then the message of the method, or the error of the method.
//
// # What goes to net/http
//
// Everything else: JSON, gRPC, HTTP/2, GET, streams, large and compressed bodies, pages, and each
// request that is malformed, unusual, or must be refused before its body is read. The connection
// goes to net/http for good, and net/http reads the request from its first byte. The loop itself
// never writes an error about a request, with the one exception of [conn.rejectHTTP2Preface].
//
// # Framing
//
// A server and a proxy in front of it that disagree on where a request ends let one client smuggle
// a request into the connection of another. These rules prevent that:
//
//   - The parser accepts one spelling of a request: lines end with CR LF, a name is a token directly followed by its colon, values are
//     printable ASCII, there is exactly one Host and one Content-Length in plain decimal digits, and no Transfer-Encoding, Upgrade, Expect
//     or Trailer. FuzzHead checks that net/http reads each accepted request in the same way, to the byte.
//   - Each request is either answered by the loop or read by net/http from its start. No request is read by both.
//   - Behind an answered call a connection must not become one of HTTP/2.
//   - A message with both a Content-Length and a Transfer-Encoding is left to net/http, and its connection closes after the answer. See
//     [MustClose].
//
// # Timeouts
//
// They are those of net/http, with the loop's own deadlines on the connection: ReadHeaderTimeout
// for a head (and for the TLS handshake), ReadTimeout for a body, IdleTimeout between requests, and
// [Options.WriteTimeout] for the client to read an answer, from when the answer is ready. A call
// ends at the timeout that its caller sends. Unlike in net/http, a call does not end when its
// client goes away: to notice that, net/http reads in the background, which is much of its cost.
//
// # Shutdown
//
// [Loop.Shutdown] closes the listener and all idle connections, and answers each call that has
// begun, as the last one of its connection. A connection on which nothing has come yet has five
// seconds to bring a call, because its client may have sent one already. [Loop.Close] interrupts
// whatever is left.
package http1
