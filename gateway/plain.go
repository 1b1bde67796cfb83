package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/http1"
	"github.com/skein-feed/skein/gateway/internal/request"
)

// plainMethod is a method that answers the plain calls of package http1.
type plainMethod interface {
	// admitBeforeBody reports whether the body of a call may be read. An unauthenticated caller
	// must not occupy the server for as long as that may take.
	admitBeforeBody(caller identity) bool
	// answerPlain appends the encoded answer to a call with this body to dst. lag is by how many
	// envelopes the state that answered was behind the log; a negative lag is not sent.
	answerPlain(ctx context.Context, caller identity, body, dst []byte) (answer []byte, lag int64, err error)
}

// unaryMethod is a request-response method.
type unaryMethod[Req, Res any, P request.Message[Req]] struct {
	*method
	check  func(P) []apierror.Violation
	handle func(context.Context, P, *call.Info) (*Res, error)
	// Handler is Connect's, for all protocols and encodings: it answers what came through net/http.
	http.Handler
}

// answerPlain is part of plainMethod.
func (u *unaryMethod[Req, Res, P]) answerPlain(
	ctx context.Context, caller identity, body, dst []byte,
) (answer []byte, lag int64, err error) {
	// One struct for both saves an allocation, and these calls are frequent.
	state := &struct {
		req  request.Received[Req, P]
		info call.Info
	}{info: call.Info{Lag: -1, LongPages: u.s.budgets.LongPages}}
	defer state.info.ReleaseLongPage()

	if err := request.UnmarshalProto(body, state.req.Message()); err != nil {
		// answer reports the error, but checks the role first: a caller without it is refused
		// before the request is examined.
		state.req.SetDecodeError(err)
	}
	res, err := u.answer(ctx, caller, &state.req, &state.info)
	if err != nil {
		return nil, state.info.Lag, err
	}
	answer, err = appendMessage(dst, any(res))
	return answer, state.info.Lag, err
}

// appendMessage appends an encoded message to dst.
func appendMessage(dst []byte, v any) ([]byte, error) {
	m, err := request.AsMessage(v)
	if err == nil {
		dst, err = request.AppendProto(dst, m)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", err))
	}
	return dst, nil
}

// endpoint is what the connections of one listener have in common: that for clients, or that for
// the other nodes of a cluster.
type endpoint struct {
	s *Server
	// methods are those that can be called, by path.
	methods map[string]http.Handler
	// authenticate identifies the caller of a call to a path.
	authenticate func(path []byte, authorization string, certificate *x509.Certificate) identity
	// allowsHost reports whether the endpoint answers to a Host; nil means to any.
	allowsHost func(host string) bool
	// conns are all connections of the listener, including those that net/http serves.
	conns *admission.Connections
}

// clientEndpoint is the endpoint for clients.
func (s *Server) clientEndpoint() *endpoint {
	e := &endpoint{s: s, methods: s.methods, conns: &s.conns}
	e.authenticate = func(_ []byte, authorization string, certificate *x509.Certificate) identity {
		return s.authenticate(authorization, certificate)
	}
	// Only a server without an authenticator checks the Host: a page that reaches the server by
	// another host name has no token to send.
	if s.authenticator == nil {
		e.allowsHost = s.hosts.Allow
	}
	return e
}

// loop returns the loop that serves a listener, with netHTTP for what it does not answer itself.
func (e *endpoint) loop(l net.Listener, netHTTP *http.Server) *http1.Loop {
	return http1.New(l, http1.Options{
		OpenSession:  e.openSession,
		NetHTTP:      netHTTP,
		WriteTimeout: e.s.limits.IOTimeout,
		BodyBytes:    e.s.limits.BodyBytes,
		Logger:       e.s.logger,
	})
}

// openSession counts a new connection. It returns nil if there is no room for another one.
func (e *endpoint) openSession(conn net.Conn) http1.Session {
	known := e.conns.Enter(conn, e.s.limits.Connections)
	if known == nil {
		return nil
	}
	return &session{endpoint: e, conn: known}
}

// session is one connection in the loop of package http1. It implements [http1.Session].
type session struct {
	*endpoint
	conn *admission.Conn
	// netHTTPConn is the connection as net/http knows it, or nil.
	netHTTPConn net.Conn
	// authorization is the header of the last call, and host the last Host that was allowed. Those
	// of the next call are nearly always the same, so keeping them saves an allocation per call.
	authorization, host string
	// method and caller are those of the call that was admitted last.
	method plainMethod
	caller identity
	// memory is what is reserved of the budget of bytes for that call and its answer.
	memory admission.Reservation
}

// Admit is part of [http1.Session].
func (c *session) Admit(head *http1.Head, state *tls.ConnectionState) bool {
	method, ok := c.methods[string(head.Path)].(plainMethod)
	if !ok || !c.isAllowedHost(head.Host) {
		return false
	}
	c.method = method

	if string(head.Authorization) != c.authorization {
		c.authorization = string(head.Authorization)
	}
	c.caller = c.authenticate(head.Path, c.authorization, verifiedCertificate(state))
	if !method.admitBeforeBody(c.caller) {
		return false
	}

	// net/http refuses the call, unless memory has become free by then.
	return c.reserve(admission.HeldPerByte*head.BodyBytes) == nil
}

// isAllowedHost reports whether the endpoint answers to the Host of a call. It remembers the last
// Host that was allowed.
func (c *session) isAllowedHost(host []byte) bool {
	if c.allowsHost == nil {
		return true
	}
	if c.host != "" && string(host) == c.host { // the comparison does not allocate
		return true
	}
	name := string(host)
	if !c.allowsHost(name) {
		return false
	}
	c.host = name
	return true
}

// reserve takes bytes for the current call, unless they are few.
func (c *session) reserve(n int) *apierror.Failure {
	if n <= admission.FreeBytes {
		return nil
	}
	c.memory.ChargeTo(c.s.budgets.Bytes, c.budgetCaller())
	return c.memory.Hold(int64(n))
}

// budgetCaller names the caller for whom the budget of bytes counts.
func (c *session) budgetCaller() string {
	// The identity of a call in the loop has no connection, because the session counts its calls.
	caller := c.caller
	caller.conn = c.conn
	return caller.budgetCaller(c.s, false)
}

// Answer is part of [http1.Session].
func (c *session) Answer(ctx context.Context, head *http1.Head, body, dst []byte) (answer []byte, lag int64, err error) {
	ctx = withCallerRequestID(ctx, head.RequestID)
	if c.s.tracer != nil {
		ctx = c.s.withTraceParent(ctx, string(head.TraceParent))
	}

	answer, lag, err = c.call(ctx, body, dst)
	if err != nil {
		return nil, lag, err
	}

	// The answer stays in memory until the client has read it.
	if f := c.reserve(len(answer) - len(dst)); f != nil {
		return nil, lag, c.s.answerRefusedError(ctx, f)
	}
	return answer, lag, nil
}

// call calls the method. Meanwhile the connection counts as working, so that it is not closed to
// make room for another one.
func (c *session) call(ctx context.Context, body, dst []byte) (answer []byte, lag int64, err error) {
	c.conn.Begin(time.Now())
	defer c.conn.End()
	if c.s.cluster != nil {
		var release func()
		ctx, release = c.s.cluster.ChargeAnswers(ctx, c.budgetCaller())
		defer release()
	}
	return c.method.answerPlain(ctx, c.caller, body, dst)
}

// AppendHeaders is part of [http1.Session]. An answer for another node proves that it comes from
// this one.
func (c *session) AppendHeaders(head []byte) []byte {
	if c.caller.node == nil {
		return head
	}
	return c.caller.node.AppendHeader(head)
}

// Release is part of [http1.Session].
func (c *session) Release() { c.memory.Release() }

// IsDraining is part of [http1.Session].
func (c *session) IsDraining() bool { return c.s.draining.Load() }

// PassToNetHTTP is part of [http1.Session].
func (c *session) PassToNetHTTP(conn net.Conn) {
	c.netHTTPConn = conn
	c.conns.PassToNetHTTP(c.conn, conn)
}

// Close is part of [http1.Session].
func (c *session) Close() {
	if c.netHTTPConn != nil {
		c.conns.RemoveFromNetHTTP(c.netHTTPConn)
		return
	}
	c.conns.Leave(c.conn)
}
