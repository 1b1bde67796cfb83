package gateway

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/http1"
)

const (
	// RequestIDHeader is the request header by which a caller may give a call an id. All log lines
	// about the call contain the id.
	RequestIDHeader = http1.RequestIDHeader
	// ErrorIDHeader is the header of an error answer with the id under which the log of the service
	// has the call. A call to which its caller has given no id gets one only when something is
	// logged about it.
	ErrorIDHeader = "Skein-Request-Id"
	// maxRequestID is the length of the longest id that a caller may give. Longer ids, and ids with
	// other characters than those of isValidRequestID, are ignored, because they go to the log.
	maxRequestID = 128
)

// isValidRequestID reports whether an id is short, and consists of characters that are harmless in
// a log and in a header.
func isValidRequestID[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		isAlphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !isAlphanumeric && c != '-' && c != '_' && c != '.' && c != ':' && c != '/' && c != '+' && c != '=' {
			return false
		}
	}
	return true
}

type requestIDKey struct{}

// withCallerRequestID returns a context with the id that the caller has given to its call. If the
// id is empty or invalid, it returns ctx.
func withCallerRequestID[T string | []byte](ctx context.Context, id T) context.Context {
	if !isValidRequestID(id) {
		return ctx
	}
	return context.WithValue(ctx, requestIDKey{}, string(id))
}

// withHTTPRequestID is withCallerRequestID for a request of net/http.
func withHTTPRequestID(r *http.Request) *http.Request {
	ids := r.Header[RequestIDHeader]
	if len(ids) == 0 {
		return r
	}
	if ctx := withCallerRequestID(r.Context(), ids[0]); ctx != r.Context() {
		return r.WithContext(ctx)
	}
	return r
}

// requestIDOf returns the id of a call, or "" if it has none.
func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// ensureRequestID returns a context with the id of the call, which gets a random one if it has
// none.
func ensureRequestID(ctx context.Context) context.Context {
	if requestIDOf(ctx) != "" {
		return ctx
	}
	return context.WithValue(ctx, requestIDKey{}, rand.Text())
}

// addErrorID adds the id of the call, if it has one, to its error, so that the error can be found
// in the log of the service.
func addErrorID(ctx context.Context, err *connect.Error) *connect.Error {
	if id := requestIDOf(ctx); id != "" {
		err.Meta().Set(ErrorIDHeader, id)
	}
	return err
}

// callLogHandler adds the id of the call to its log records, and the id of its trace if the trace
// is sampled.
type callLogHandler struct{ slog.Handler }

// Handle is part of [slog.Handler], as are the next two.
func (h callLogHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := requestIDOf(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if id := traceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that also writes the attributes.
func (h callLogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return callLogHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that writes later attributes into a group.
func (h callLogHandler) WithGroup(name string) slog.Handler {
	return callLogHandler{h.Handler.WithGroup(name)}
}
