package gateway

import (
	"net/http"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/console"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
)

// mediaType answers a call in an encoding, or by an HTTP method, that no handler understands. Connect's handler sends a bare 415 or
// 405: curl without a Content-Type, the first call of many users, would show nothing at all.
type mediaTypeErrorWriter struct {
	http.ResponseWriter
	s *Server
	r *http.Request
}

// understands reports whether a call needs no [mediaType]: nearly all are these.
func (s *Server) hasCommonMediaType(r *http.Request) bool {
	v := r.Header["Content-Type"]
	return r.Method == http.MethodPost && len(v) == 1 && !s.streams[r.URL.Path] && (v[0] == "application/proto" || v[0] == "application/json")
}

// WriteHeader is part of [http.ResponseWriter].
func (m mediaTypeErrorWriter) WriteHeader(status int) {
	if status == http.StatusMethodNotAllowed {
		m.s.refuseStatus(m.ResponseWriter, m.r, status)
		return
	}
	if status != http.StatusUnsupportedMediaType {
		m.ResponseWriter.WriteHeader(status)
		return
	}
	f := m.mediaTypeError()
	m.s.logger.DebugContext(m.r.Context(), "call turned away", "method", m.r.URL.Path[1:], "code", f.Code.String(), "error", f)
	answer := statusOverride{m.ResponseWriter, status}
	if err := http1.WriteError(answer, m.s.countRefusal(m.r.Context(), m.r.URL.Path[1:], f)); err != nil {
		m.s.logger.DebugContext(m.r.Context(), "answer not sent", "error", err)
	}
}

// Flush is part of [http.Flusher], which streams need.
func (m mediaTypeErrorWriter) Flush() { _ = http.NewResponseController(m.ResponseWriter).Flush() }

// Unwrap is for [http.ResponseController].
func (m mediaTypeErrorWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m mediaTypeErrorWriter) mediaTypeError() *apierror.Failure {
	if m.r.Method == http.MethodGet {
		return apierror.Invalid(apierror.InvalidField("request", "by GET must have encoding=json or encoding=proto in its query, and no body"))
	}
	own := "application/json or application/proto"
	if m.s.streams[m.r.URL.Path] {
		own = "application/connect+json or application/connect+proto"
	}
	return apierror.Invalid(apierror.InvalidField("Content-Type",
		"must be %s, or one of gRPC: application/grpc, application/grpc-web; it is %q", own, m.r.Header.Get("Content-Type")))
}

// refuseStatus answers a request for an unknown path, or with a method that is not allowed, like other errors. It is not
// counted, because a client can invent any number of paths.
func (s *Server) refuseStatus(w http.ResponseWriter, r *http.Request, status int) {
	pages := "/healthz, /readyz, /metrics"
	if s.console != nil {
		pages = console.Path + ", " + pages
	}
	f := apierror.Invalid(apierror.InvalidField("path",
		"must be that of a method, as /skein.v1.GraphService/CheckFollows, or of a page: %s; it is %.80q", pages, r.URL.EscapedPath()))
	if allowed := w.Header().Get("Allow"); status == http.StatusMethodNotAllowed {
		f = apierror.Invalid(apierror.InvalidField("method", "must be %s; it is %.16q", allowed, r.Method))
	}
	f.Code = connect.CodeUnimplemented
	w.Header().Del("Content-Type") // of a text
	if err := http1.WriteError(statusOverride{w, status}, addErrorID(r.Context(), f.ConnectError())); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// textless replaces the texts of net/http for a page that is not there.
type pageErrorWriter struct {
	http.ResponseWriter
	s        *Server
	r        *http.Request
	replaced bool
}

// WriteHeader is part of [http.ResponseWriter].
func (t *pageErrorWriter) WriteHeader(status int) {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		t.ResponseWriter.WriteHeader(status)
		return
	}
	t.replaced = true
	t.s.refuseStatus(t.ResponseWriter, t.r, status)
}

// Write is part of [http.ResponseWriter].
func (t *pageErrorWriter) Write(p []byte) (int, error) {
	if t.replaced {
		return len(p), nil
	}
	return t.ResponseWriter.Write(p)
}

// withStatus sends another status than the code of an error has.
type statusOverride struct {
	http.ResponseWriter
	status int
}

// WriteHeader is part of [http.ResponseWriter].
func (w statusOverride) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }
