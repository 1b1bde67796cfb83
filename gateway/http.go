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

// ServeHTTP finds the method, or one of the few other pages. It bounds what a call may send before anything is read.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The next call should go to a process that stays.
	if http1.MustClose(r) || s.draining.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// No browser may take an answer for another type than it says, such as JSON with markup in an id for a page.
	w.Header()[noSniffHeader] = noSniff
	if f := s.checkHost(r); f != nil {
		s.writeForeignRefusal(w, r, f)
		return
	}
	if s.cors != nil {
		if s.cors.HandlerFunc(w, r); isPreflight(r) {
			return
		}
	}
	if f := s.checkOrigin(r); f != nil {
		s.writeForeignRefusal(w, r, f)
		return
	}
	if r.URL.RawPath != "" || !isCleanPath(r.URL.Path) {
		// Every path here is spelled in one way, so that a proxy that forbids one forbids all of it. net/http would answer the path
		// //skein.v1.GraphService/CheckFollows with a redirect that no client of an RPC follows.
		s.refuseStatus(w, r, http.StatusNotFound)
		return
	}
	h, ok := s.methods[r.URL.Path]
	if !ok {
		s.pages.ServeHTTP(w, r)
		return
	}
	r = s.withHTTPTraceParent(withHTTPRequestID(r))
	if r.Method == http.MethodGet {
		w.Header().Set("Cache-Control", "no-store")
	}
	a := s.newHTTPCall(w, r)
	if a.authError != nil && !a.open {
		// Before any of its body is read, which may be long.
		s.refuseCall(w, r, unauthenticatedError(a.authError))
		return
	}
	requests := s.budgets.Requests
	switch {
	case a.open:
		requests = s.budgets.HealthRequests
	case s.streams[r.URL.Path]:
		requests = s.budgets.StreamRequests
	}
	if f := requests.Take(a.memory.Caller(), 1); f != nil {
		s.refuseCall(w, r, f)
		return
	}
	defer requests.Give(a.memory.Caller(), 1)
	defer a.memory.Release()
	if r.ContentLength > int64(s.limits.BodyBytes) {
		s.refuseCall(w, r, s.tooLargeError(""))
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), httpCallKey{}, a)) //nolint:contextcheck // it is that of the request
	a.body = boundedBody{ReadCloser: r.Body, s: s, memory: &a.memory, left: int64(s.limits.BodyBytes), http1: r.ProtoMajor == 1}
	r.Body = &a.body
	if f := s.decompressBody(r, &a.memory); f != nil {
		s.refuseCall(w, r, f)
		return
	}
	if s.streams[r.URL.Path] {
		a.deadline.extend()
	}
	if f := s.checkProtocol(r); f != nil {
		s.refuseCall(w, r, f)
		return
	}
	if !s.hasCommonMediaType(r) {
		w = mediaTypeErrorWriter{w, s, r}
	}
	h.ServeHTTP(w, r)
}

// isCleanPath reports whether a path has no empty, "." or ".." element, besides an empty last one.
func isCleanPath(p string) bool {
	clean := path.Clean(p)
	return p == clean || p == clean+"/" && clean != "/"
}

const noSniffHeader = "X-Content-Type-Options"

// noSniff is the value of that header. All answers share it, so it must not be changed.
var noSniff = []string{"nosniff"}

// arrival is a call that came through net/http.
type httpCall struct {
	identity
	// open is set if the method needs no authentication.
	open     bool
	memory   admission.Holding
	deadline answerDeadline
	body     boundedBody
}

func (s *Server) newHTTPCall(w http.ResponseWriter, r *http.Request) *httpCall {
	authorization, cert := authorizationHeader(r), verifiedCertificate(r.TLS)
	a := &httpCall{identity: s.authenticate(authorization, cert), open: s.rights[r.URL.Path].open, deadline: answerDeadline{w, s.limits.IOTimeout}}
	a.conn = connectionOf(r.Context())
	if s.gate != nil && a.authError == nil && s.streams[r.URL.Path] {
		a.reauthenticate = func() identity { return s.authenticate(authorization, cert) }
	}
	a.memory = admission.NewHolding(s.budgets.Bytes, a.budgetCaller(s, a.open))
	return a
}

type httpCallKey struct{}

// arrivalOf returns the call that a context belongs to; nil means that it did not come through net/http.
func httpCallOf(ctx context.Context) *httpCall {
	a, _ := ctx.Value(httpCallKey{}).(*httpCall)
	return a
}

// identityOf returns the caller of a call that came through net/http, or else the zero identity, which may do nothing.
func identityOf(ctx context.Context) (a identity) {
	if c := httpCallOf(ctx); c != nil {
		a = c.identity
	}
	return a
}

// turnAway answers a call that is refused before it reaches a method.
func (s *Server) refuseCall(w http.ResponseWriter, r *http.Request, f *apierror.Failure) {
	s.logger.DebugContext(r.Context(), "call turned away", "method", r.URL.Path[1:], "code", f.Code.String(), "error", f)
	if err := s.errorWriter.Write(w, r, s.countRefusal(r.Context(), r.URL.Path[1:], f)); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// turnedAway counts a call that is refused before it reaches a method, and returns the error for its caller.
func (s *Server) countRefusal(ctx context.Context, method string, f *apierror.Failure) error {
	s.metrics.RPC(method).Failed(f.Code, 0)
	s.metrics.Refused(f)
	return addErrorID(ctx, f.ConnectError())
}

func (s *Server) tooLargeError(when string) *apierror.Failure {
	return &apierror.Failure{
		Code: connect.CodeInvalidArgument, Reason: skeinv1.Reason_REASON_TOO_LARGE,
		Text: "the body is larger than " + events.FormatSize(uint64(s.limits.BodyBytes)) + when,
	}
}

// patience is the time that a client has to take its answer, or the next part of it if it is a stream.
type answerDeadline struct {
	w       http.ResponseWriter
	timeout time.Duration
}

// renew starts the time for the next part. A server without deadlines, as a test may be one, has no limit.
func (p *answerDeadline) extend() {
	_ = http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.timeout))
}

// requested says that the request has arrived. A read deadline that passes while the answer is sent would look like a
// client that went away.
func (p *answerDeadline) clearReadDeadline() {
	_ = http.NewResponseController(p.w).SetReadDeadline(time.Time{})
}

// rest ends the time for a part that was taken: until the next one there may be a long while.
func (p *answerDeadline) clear() { _ = http.NewResponseController(p.w).SetWriteDeadline(time.Time{}) }

// parts is the stream of an answer.
type rpcStream[Res any] struct {
	out *connect.ServerStream[Res]
	// patience is nil for a call that did not come through net/http.
	deadline *answerDeadline
}

// Send sends one part, which its client has to take in time.
func (p *rpcStream[Res]) Send(part *Res) error {
	if p.deadline != nil {
		p.deadline.extend()
		defer p.deadline.clear()
	}
	return p.out.Send(part)
}

// SetLag says by how many envelopes the first part was behind the log.
func (p *rpcStream[Res]) SetLag(lag int64) { p.out.ResponseHeader()[LagHeader] = formatLag(lag) }

// patienceOf returns the patience of a call that came through net/http, and nil for none.
func answerDeadlineOf(ctx context.Context) *answerDeadline {
	if a := httpCallOf(ctx); a != nil {
		return &a.deadline
	}
	return nil
}

type connectionKey struct{}

// connectionOf is the connection of a call in net/http; nil means [Server.Run] does not know it.
func connectionOf(ctx context.Context) *admission.Conn {
	o, _ := ctx.Value(connectionKey{}).(*admission.Conn)
	return o
}
