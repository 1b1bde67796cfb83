package gateway

import (
	"net/http"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/console"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
)

// mediaTypeErrorWriter answers a call whose Content-Type or HTTP method no handler accepts.
// Connect's handlers answer such a call with status 415 or 405 and no body, so that curl without a
// Content-Type, the first call of many users, would print nothing at all.
type mediaTypeErrorWriter struct {
	http.ResponseWriter
	s *Server
	r *http.Request
}

// hasCommonMediaType reports whether a call certainly needs no [mediaTypeErrorWriter]. Nearly all
// calls are of this kind.
func (s *Server) hasCommonMediaType(r *http.Request) bool {
	contentType := r.Header["Content-Type"]
	return r.Method == http.MethodPost && len(contentType) == 1 && !s.streams[r.URL.Path] &&
		(contentType[0] == "application/proto" || contentType[0] == "application/json")
}

// WriteHeader is part of [http.ResponseWriter].
func (m mediaTypeErrorWriter) WriteHeader(status int) {
	switch status {
	case http.StatusMethodNotAllowed:
		m.s.refuseStatus(m.ResponseWriter, m.r, status)
	case http.StatusUnsupportedMediaType:
		f := m.mediaTypeError()
		m.s.logger.DebugContext(m.r.Context(), "call turned away", "method", m.r.URL.Path[1:], "code", f.Code.String(), "error", f)
		answer := statusOverride{m.ResponseWriter, status}
		if err := http1.WriteError(answer, m.s.countRefusal(m.r.Context(), m.r.URL.Path[1:], f)); err != nil {
			m.s.logger.DebugContext(m.r.Context(), "answer not sent", "error", err)
		}
	default:
		m.ResponseWriter.WriteHeader(status)
	}
}

// Flush is part of [http.Flusher], which streams need.
func (m mediaTypeErrorWriter) Flush() { _ = http.NewResponseController(m.ResponseWriter).Flush() }

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (m mediaTypeErrorWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// mediaTypeError returns the error for the call, which names the encodings that its method accepts.
func (m mediaTypeErrorWriter) mediaTypeError() *apierror.Failure {
	if m.r.Method == http.MethodGet {
		return apierror.Invalid(apierror.InvalidField("request", "by GET must have encoding=json or encoding=proto in its query, and no body"))
	}
	connectTypes := "application/json or application/proto"
	if m.s.streams[m.r.URL.Path] {
		connectTypes = "application/connect+json or application/connect+proto"
	}
	return apierror.Invalid(apierror.InvalidField("Content-Type",
		"must be %s, or one of gRPC: application/grpc, application/grpc-web; it is %q", connectTypes, m.r.Header.Get("Content-Type")))
}

// refuseStatus answers a request for an unknown path, or with an HTTP method that is not allowed,
// with an error like all others and the given HTTP status. Such requests are not counted, because a
// client could make up any number of paths.
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
	w.Header().Del("Content-Type") // net/http has set that of its own text
	if err := http1.WriteError(statusOverride{w, status}, addErrorID(r.Context(), f.ConnectError())); err != nil {
		s.logger.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// pageErrorWriter replaces the text with which net/http answers a request for an unknown page by an
// error like all others.
type pageErrorWriter struct {
	http.ResponseWriter
	s        *Server
	r        *http.Request
	replaced bool
}

// WriteHeader is part of [http.ResponseWriter].
func (p *pageErrorWriter) WriteHeader(status int) {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		p.ResponseWriter.WriteHeader(status)
		return
	}
	p.replaced = true
	p.s.refuseStatus(p.ResponseWriter, p.r, status)
}

// Write is part of [http.ResponseWriter]. It drops the text that was replaced.
func (p *pageErrorWriter) Write(text []byte) (int, error) {
	if p.replaced {
		return len(text), nil
	}
	return p.ResponseWriter.Write(text)
}

// statusOverride sends the given HTTP status instead of the one that belongs to the code of an
// error.
type statusOverride struct {
	http.ResponseWriter
	status int
}

// WriteHeader is part of [http.ResponseWriter].
func (w statusOverride) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }
