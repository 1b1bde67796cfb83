package gateway

import (
	"context"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ServeHTTP finds the method, or one of the few other pages. It bounds what a call may send before anything is read.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() && r.ProtoMajor == 1 {
		// The next call should go to a process that stays.
		w.Header().Set("Connection", "close")
	}
	if f := s.foreignHost(r); f != nil {
		s.refuseForeign(w, r, f)
		return
	}
	if s.cors != nil {
		if s.cors.HandlerFunc(w, r); isPreflight(r) {
			return
		}
	}
	if f := s.foreignOrigin(r); f != nil {
		s.refuseForeign(w, r, f)
		return
	}
	h, ok := s.methods[r.URL.Path]
	if !ok {
		s.pages.ServeHTTP(w, r)
		return
	}
	r = s.requestTraced(requestNamed(r))
	if r.Method == http.MethodGet {
		w.Header().Set("Cache-Control", "no-store")
	}
	defer s.inFlight.Add(-1)
	if f := s.admit(); f != nil {
		s.turnAway(w, r, f)
		return
	}
	if r.ContentLength > int64(s.limits.BodyBytes) {
		s.turnAway(w, r, s.tooLarge())
		return
	}
	if r.ContentLength < 0 {
		r.Body = &boundedBody{ReadCloser: r.Body, left: int64(s.limits.BodyBytes), over: s.tooLarge}
	}
	if s.streams[r.URL.Path] {
		s.serveStream(w, r, h)
		return
	}
	h.ServeHTTP(w, r)
}

// admit counts a call as under way, and refuses it if there are too many. The caller counts it off again in either case.
func (s *Server) admit() *failure {
	if n := s.inFlight.Add(1); n <= int64(s.limits.InFlight) {
		return nil
	}
	return &failure{
		code: connect.CodeResourceExhausted, reason: skeinv1.Reason_REASON_OVERLOADED,
		text: "the service has as many calls under way as it allows", retry: retrySoon,
	}
}

// turnAway answers a call that no method sees.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, f *failure) {
	s.log.DebugContext(r.Context(), "call turned away", "method", r.URL.Path[1:], "code", f.code.String(), "error", f)
	if err := s.errorWriter.Write(w, r, s.turnedAway(r.Context(), r.URL.Path[1:], f)); err != nil {
		s.log.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// turnedAway counts a call that no method sees, and returns what it is told.
func (s *Server) turnedAway(ctx context.Context, method string, f *failure) error {
	s.metrics.rpc(method).failed(f.code, 0)
	s.metrics.refused(f)
	return withRequestID(ctx, f.connectError())
}

func (s *Server) tooLarge() *failure {
	return &failure{
		code: connect.CodeInvalidArgument, reason: skeinv1.Reason_REASON_TOO_LARGE,
		text: "the body is larger than " + sizeText(s.limits.BodyBytes),
	}
}

// boundedBody refuses what comes after its limit, for bodies that do not tell their length first.
type boundedBody struct {
	io.ReadCloser
	left int64
	over func() *failure
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over().connectError()
	}
	return n, err
}

// patience is the time that the client of a stream has to take its next part.
type patience struct {
	rc      *http.ResponseController
	timeout time.Duration
}

type patienceKey struct{}

// serveStream serves a call that may last: the limits of time are those of each part, not of the whole.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, h http.Handler) {
	p := &patience{rc: http.NewResponseController(w), timeout: s.limits.IOTimeout}
	p.renew()
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), patienceKey{}, p)))
}

// renew starts the time for the next part. A server without deadlines, as a test may be one, has no limit.
func (p *patience) renew() { _ = p.rc.SetWriteDeadline(time.Now().Add(p.timeout)) }

// requested says that the request has arrived. A read deadline that passes while the answer is sent would look like a
// client that went away.
func (p *patience) requested() { _ = p.rc.SetReadDeadline(time.Time{}) }

// rest ends the time for a part that was taken: until the next one there may be a long while.
func (p *patience) rest() { _ = p.rc.SetWriteDeadline(time.Time{}) }

// sendTo sends one part of a stream, which its client has to take in time.
func sendTo[Res any](ctx context.Context, out *connect.ServerStream[Res], part *Res) error {
	if p := patienceOf(ctx); p != nil {
		p.renew()
		defer p.rest()
	}
	return out.Send(part)
}

// patienceOf returns the patience of a stream, and nil for none.
func patienceOf(ctx context.Context) *patience {
	p, _ := ctx.Value(patienceKey{}).(*patience)
	return p
}
