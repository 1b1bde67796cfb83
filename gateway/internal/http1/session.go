package http1

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Session is what the server does for one connection: the only way from the loop to the server behind it. The loop calls one method of a
// session at a time.
type Session interface {
	// Admit decides, before the body of a call is read, whether the loop may answer the call: whether the path is that of a method which
	// answers plain calls, the server answers to the Host, the caller may have a call under way, and there is memory for the body. If not, the
	// connection goes to net/http, which judges the call again and says what is wrong with it. state is nil for a connection without TLS.
	// Admit must not keep parts of the head.
	Admit(call *Head, state *tls.ConnectionState) bool
	// Answer answers the call that was admitted last. It appends the encoded message to dst, and returns by how many envelopes the state that
	// answered was behind the log (negative: does not apply). An error is sent as that of a unary call of Connect.
	Answer(ctx context.Context, call *Head, body, dst []byte) (answer []byte, lag int64, err error)
	// Release gives back what the last call has reserved. The loop calls it once the answer was written, and when a connection leaves the
	// loop.
	Release()
	// IsDraining reports whether the server is about to stop. Each answer closes its connection then.
	IsDraining() bool
	// PassToNetHTTP is called before net/http gets the connection, which it knows as conn.
	PassToNetHTTP(conn net.Conn)
	// Close is called when the connection was closed, unless net/http has taken it.
	Close()
}

// Options say how a [Loop] serves.
type Options struct {
	// OpenSession returns the session of a new connection, or nil if there may be no more connections: the loop closes it then.
	OpenSession func(net.Conn) Session
	// NetHTTP serves the connections that are not for the loop. Its Handler answers whatever comes on them. Its limits hold for the loop, too,
	// but for WriteTimeout. Its ConnContext must call [ConnContext].
	NetHTTP *http.Server
	// WriteTimeout is how long a client may take to read an answer. That of net/http includes the time to work.
	WriteTimeout time.Duration
	// BodyBytes is the largest body of a request.
	BodyBytes int
	Logger    *slog.Logger
}
