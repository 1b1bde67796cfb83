package gateway

import (
	"context"
	"net/http"
	"path"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ServeHTTP finds the handler of the method or page, and limits what a call may send before
// anything of its body is read.
//
// It is long because the order of the checks matters: each one must come before the work that it
// protects.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// While the process drains, the next call of the client should go to a process that stays.
	if http1.MustClose(r) || s.draining.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// A browser must not interpret an answer as another type than its Content-Type, such as JSON
	// that contains an id with markup as a page.
	w.Header()[noSniffHeader] = noSniff

	// These two checks also cover the pages that are not methods, such as /metrics.
	if f := s.checkHost(r); f != nil {
		s.writeForeignRefusal(w, r, f)
		return
	}
	if s.cors != nil {
		s.cors.HandlerFunc(w, r)
		if isPreflight(r) {
			return
		}
	}
	if f := s.checkOrigin(r); f != nil {
		s.writeForeignRefusal(w, r, f)
		return
	}

	if r.URL.RawPath != "" || !isCleanPath(r.URL.Path) {
		// Each path has only one spelling here, so that a proxy that forbids this spelling forbids
		// the path. net/http would answer the path //skein.v1.GraphService/CheckFollows with a
		// redirect that no RPC client follows.
		s.refuseStatus(w, r, http.StatusNotFound)
		return
	}
	handler, ok := s.methods[r.URL.Path]
	if !ok {
		s.pages.ServeHTTP(w, r)
		return
	}

	r = s.withHTTPTraceParent(withHTTPRequestID(r))
	if r.Method == http.MethodGet {
		w.Header().Set("Cache-Control", "no-store")
	}

	// An unauthenticated caller is refused before its body, which may be long, is read.
	c := s.newHTTPCall(w, r)
	if c.authError != nil && !c.isOpen {
		s.refuseCall(w, r, unauthenticatedError(c.authError))
		return
	}

	// The request holds a place until its client has taken the answer, because client and server
	// may take any time for either.
	requests := s.budgets.Requests
	switch {
	case c.isOpen:
		requests = s.budgets.HealthRequests
	case s.streams[r.URL.Path]:
		requests = s.budgets.StreamRequests
	}
	if f := requests.Take(c.memory.Caller(), 1); f != nil {
		s.refuseCall(w, r, f)
		return
	}
	defer requests.Release(c.memory.Caller(), 1)
	defer c.memory.Release()

	// From here on, the order is: the length that the header says, the bytes that arrive, the bytes
	// that they decompress to, and then the headers that only Connect's handler would refuse.
	//
	// A body whose announced length is too large is refused unread. A body without a length is
	// counted while it is read.
	if r.ContentLength > int64(s.limits.BodyBytes) {
		s.refuseCall(w, r, s.tooLargeError(""))
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), httpCallKey{}, c)) //nolint:contextcheck // it is that of the request
	c.body = boundedBody{
		ReadCloser: r.Body, s: s, memory: &c.memory, left: int64(s.limits.BodyBytes), isHTTP1: r.ProtoMajor == 1,
	}
	r.Body = &c.body
	if f := s.decompressBody(r, &c.memory); f != nil {
		s.refuseCall(w, r, f)
		return
	}

	if s.streams[r.URL.Path] {
		c.deadline.extend()
	}
	if f := s.checkProtocol(r); f != nil {
		s.refuseCall(w, r, f)
		return
	}
	if !s.hasCommonMediaType(r) {
		w = mediaTypeErrorWriter{w, s, r}
	}
	handler.ServeHTTP(w, r)
}

// isCleanPath reports whether a path has no empty, "." or ".." element. The last element may be
// empty.
func isCleanPath(p string) bool {
	clean := path.Clean(p)
	return p == clean || p == clean+"/" && clean != "/"
}

const noSniffHeader = "X-Content-Type-Options"

// noSniff is the value of noSniffHeader. All answers share the slice, so it must not be changed.
var noSniff = []string{"nosniff"}

// httpCall is a call that came through net/http. It is in the context of the call.
type httpCall struct {
	identity
	// isOpen is set if the method needs no authentication.
	isOpen bool
	// memory is what the request and its answer hold of the budget of bytes.
	memory   admission.Reservation
	deadline answerDeadline
	body     boundedBody
}

// newHTTPCall authenticates the caller of a request.
func (s *Server) newHTTPCall(w http.ResponseWriter, r *http.Request) *httpCall {
	authorization := authorizationHeader(r)
	cert := verifiedCertificate(r.TLS)
	c := &httpCall{
		identity: s.authenticate(authorization, cert),
		isOpen:   s.rights[r.URL.Path].open,
		deadline: answerDeadline{w, s.limits.IOTimeout},
	}
	c.conn = connectionOf(r.Context())
	// An open method admits everybody, so its streams need not end when a token does.
	mayLoseRights := s.authenticator != nil && c.authError == nil && !c.isOpen
	if mayLoseRights && s.streams[r.URL.Path] {
		c.reauthenticate = func() identity { return s.authenticate(authorization, cert) }
	}
	c.memory = admission.NewReservation(s.budgets.Bytes, c.budgetCaller(s, c.isOpen))
	return c
}

type httpCallKey struct{}

// httpCallOf returns the call that a context belongs to, or nil if the call did not come through
// net/http.
func httpCallOf(ctx context.Context) *httpCall {
	c, _ := ctx.Value(httpCallKey{}).(*httpCall)
	return c
}

// identityOf returns the caller of a call that came through net/http. For any other call it returns
// the zero identity, which has no rights.
func identityOf(ctx context.Context) identity {
	if c := httpCallOf(ctx); c != nil {
		return c.identity
	}
	return identity{}
}

// refuseCall answers a call that is refused before it reaches its method.
func (s *Server) refuseCall(w http.ResponseWriter, r *http.Request, f *apierror.Failure) {
	s.logger.DebugContext(r.Context(), "call turned away", "method", r.URL.Path[1:], "code", f.Code.String(), "error", f)
	if err := s.errorWriter.Write(w, r, s.countRefusal(r.Context(), r.URL.Path[1:], f)); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// countRefusal counts a call that is refused before it reaches its method, and returns the error
// for the client.
func (s *Server) countRefusal(ctx context.Context, method string, f *apierror.Failure) error {
	s.metrics.RPC(method).Failed(f.Code, 0)
	s.metrics.Refused(f)
	return addErrorID(ctx, f.ConnectError())
}

// tooLargeError is the error of a body above the limit. suffix completes the sentence, and begins
// with a space unless it is empty.
func (s *Server) tooLargeError(suffix string) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_TOO_LARGE,
		Text: "the body is larger than " + events.FormatSize(uint64(s.limits.BodyBytes)) + suffix,
	}
}

// answerDeadline limits how long a client may take to read its answer, or each message of it if it
// is a stream. On an HTTP server that supports no deadlines, as in some tests, its methods have no
// effect.
type answerDeadline struct {
	w       http.ResponseWriter
	timeout time.Duration
}

// extend gives the client the timeout, from now on, to read the answer or the next message.
func (d *answerDeadline) extend() {
	_ = http.NewResponseController(d.w).SetWriteDeadline(time.Now().Add(d.timeout))
}

// clearReadDeadline removes the deadline for the request, which has arrived. If that deadline
// passed during the answer, net/http would treat the client as gone.
func (d *answerDeadline) clearReadDeadline() {
	_ = http.NewResponseController(d.w).SetReadDeadline(time.Time{})
}

// clear removes the deadline after a message was read, because the next message of a stream may
// follow much later.
func (d *answerDeadline) clear() { _ = http.NewResponseController(d.w).SetWriteDeadline(time.Time{}) }

// rpcStream sends the messages of a stream to a client of Connect or gRPC.
type rpcStream[Res any] struct {
	out *connect.ServerStream[Res]
	// deadline is nil for a call that did not come through net/http.
	deadline *answerDeadline
}

// Send sends one message. It fails if the client does not read the message in time.
func (p *rpcStream[Res]) Send(part *Res) error {
	if p.deadline != nil {
		p.deadline.extend()
		defer p.deadline.clear()
	}
	return p.out.Send(part)
}

// SetLag sets the header that says by how many envelopes the first message is behind the log.
func (p *rpcStream[Res]) SetLag(lag int64) { p.out.ResponseHeader()[LagHeader] = formatLag(lag) }

// answerDeadlineOf returns the deadline of a call that came through net/http, or nil for any other
// call.
func answerDeadlineOf(ctx context.Context) *answerDeadline {
	if c := httpCallOf(ctx); c != nil {
		return &c.deadline
	}
	return nil
}

type connectionKey struct{}

// connectionOf returns the connection of a call in net/http, or nil if [Server.Run] did not accept
// the connection.
func connectionOf(ctx context.Context) *admission.Conn {
	conn, _ := ctx.Value(connectionKey{}).(*admission.Conn)
	return conn
}
