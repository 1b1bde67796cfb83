package http1

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Session is the server's side of one connection, and the only way from the loop to the server. The
// loop calls one method of a session at a time.
type Session interface {
	// Admit decides, before the body of a call is read, whether the loop may answer the call. That
	// needs a method at the path that answers plain calls, a Host that the server answers to, a
	// caller who may call, and memory for the body. If Admit returns false, the connection goes to
	// net/http, whose handler judges the call again and answers what is wrong with it. state is nil
	// for a connection without TLS. Admit must not keep the head, or parts of it.
	Admit(head *Head, state *tls.ConnectionState) bool
	// Answer answers the call that was admitted last. It appends the encoded message to dst and
	// returns the extended slice. lag is by how many envelopes the state that answered was behind
	// the log; a negative lag is not sent. An error is sent as the error of a unary Connect call.
	Answer(ctx context.Context, head *Head, body, dst []byte) (answer []byte, lag int64, err error)
	// AppendHeaders appends headers to the head of the answer to the call that was answered last,
	// each with its CR LF. They may have maxSessionHeaders bytes.
	AppendHeaders(head []byte) []byte
	// Release gives back what Admit and Answer have reserved. The loop calls Release after an
	// answer was written, and when the connection leaves the loop.
	Release()
	// IsDraining reports whether the server is about to stop, so that each answer should close its
	// connection.
	IsDraining() bool
	// PassToNetHTTP is called just before net/http gets the connection as conn, which is not always
	// the value that the listener returned.
	PassToNetHTTP(conn net.Conn)
	// Close is called after the loop has closed the connection. The loop does not call Close for a
	// connection that net/http has accepted.
	Close()
}

// Options configure a [Loop]. All fields are required.
type Options struct {
	// OpenSession returns the session of a new connection, or nil if there may be no further
	// connection. The loop then closes the connection.
	OpenSession func(net.Conn) Session
	// NetHTTP serves the connections that leave the loop. The loop uses its ReadHeaderTimeout,
	// ReadTimeout, IdleTimeout and MaxHeaderBytes, too. Its ConnContext must call [ConnContext].
	NetHTTP *http.Server
	// WriteTimeout is how long a client may take to read an answer of the loop. The WriteTimeout of
	// net/http does not fit, because it includes the time to work on a call.
	WriteTimeout time.Duration
	// BodyBytes is the largest body of a request.
	BodyBytes int
	// Logger gets failures of the listener, and panics.
	Logger *slog.Logger
}
