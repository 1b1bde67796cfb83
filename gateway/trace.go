package gateway

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/http1"
)

// Traces: a call that is followed has a span, and so has its append to the log; the folds that make it visible have theirs by the
// traceparent that goes beside the envelope. Without a tracer none of this is done, and a call that is not sampled costs what its
// tracer takes to decide that.

// traced returns a context for a call that its caller follows, perhaps.
func (s *Server) withTraceParent(ctx context.Context, parent string) context.Context {
	if s.tracer == nil || parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
}

// requestTraced is traced for a request of net/http.
func (s *Server) withHTTPTraceParent(r *http.Request) *http.Request {
	if s.tracer == nil || len(r.Header[http1.TraceParentHeader]) == 0 {
		return r
	}
	return r.WithContext(s.withTraceParent(r.Context(), r.Header[http1.TraceParentHeader][0]))
}

// beginSpan begins the span of a call. finish ends it.
func (m *method) beginSpan(ctx context.Context) context.Context {
	if m.s.tracer == nil {
		return ctx
	}
	ctx, _ = m.s.tracer.Start(ctx, m.name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "connect_rpc")))
	return ctx
}

func (m *method) endSpan(ctx context.Context, f *apierror.Failure) {
	if m.s.tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if f != nil {
		span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", f.Code.String()))
		if f.Code == connect.CodeInternal || f.Code == connect.CodeUnknown {
			span.SetStatus(codes.Error, f.Text)
		}
	}
	span.End()
}

// traceID is the trace of a call that is followed; empty means it is not.
func traceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		return sc.TraceID().String()
	}
	return ""
}
