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
	// RequestIDHeader is the header by which a caller may name a call. The name stands beside all that is logged of it.
	RequestIDHeader = http1.RequestIDHeader
	// ErrorIDHeader is the header of an error by which it is found in the log of the service. A call that its caller has not
	// named gets a name when something is logged of it, and only then.
	ErrorIDHeader = "Skein-Request-Id"
	// maxRequestID bounds what callers may have written to the log. Longer names, and strange ones, are as none.
	maxRequestID = 128
)

// saneRequestID reports whether a name may be written to a log and to a header: it is short and printable.
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

// callNamed returns a context for a call that its caller has named, perhaps.
func withCallerRequestID[T string | []byte](ctx context.Context, id T) context.Context {
	if len(id) == 0 || !isValidRequestID(id) {
		return ctx
	}
	return context.WithValue(ctx, requestIDKey{}, string(id))
}

// requestNamed is callNamed for a request of net/http.
func withHTTPRequestID(r *http.Request) *http.Request {
	id := r.Header[RequestIDHeader]
	if len(id) == 0 {
		return r
	}
	if ctx := withCallerRequestID(r.Context(), id[0]); ctx != r.Context() {
		return r.WithContext(ctx)
	}
	return r
}

// requestID is the name of a call; empty means it has none.
func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// toBeLogged returns a context for a call of which something will be logged: it has a name.
func ensureRequestID(ctx context.Context) context.Context {
	if requestIDOf(ctx) != "" {
		return ctx
	}
	return context.WithValue(ctx, requestIDKey{}, rand.Text())
}

// withRequestID tells an error's caller by which name it is found in the log.
func addErrorID(ctx context.Context, err *connect.Error) *connect.Error {
	if id := requestIDOf(ctx); id != "" {
		err.Meta().Set(ErrorIDHeader, id)
	}
	return err
}

// namingHandler adds the name of the call, and its trace if it is followed, to what is logged of it.
type callLogHandler struct{ slog.Handler }

// Handle is part of slog.Handler, as are the next two.
func (h callLogHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := requestIDOf(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if id := traceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that writes these attributes too.
func (h callLogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return callLogHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that writes what follows into a group.
func (h callLogHandler) WithGroup(name string) slog.Handler {
	return callLogHandler{h.Handler.WithGroup(name)}
}
