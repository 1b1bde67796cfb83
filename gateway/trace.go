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

// A traced call has a span, and so does the append of its events to the log. The trace context is
// stored with the envelope, so the folds that make the events visible add their spans to the same
// trace. Without a tracer none of this happens. With one, a call that is not sampled costs only
// what the tracer needs to decide that.

// withTraceParent returns a context with the trace context that the caller has sent in a
// traceparent header, if it has sent one.
func (s *Server) withTraceParent(ctx context.Context, traceParent string) context.Context {
	if s.tracer == nil || traceParent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceParent})
}

// withHTTPTraceParent is withTraceParent for a request of net/http.
func (s *Server) withHTTPTraceParent(r *http.Request) *http.Request {
	if s.tracer == nil || len(r.Header[http1.TraceParentHeader]) == 0 {
		return r
	}
	return r.WithContext(s.withTraceParent(r.Context(), r.Header[http1.TraceParentHeader][0]))
}

// beginSpan begins the span of a call. [method.finishCall] ends it.
func (m *method) beginSpan(ctx context.Context) context.Context {
	if m.s.tracer == nil {
		return ctx
	}
	ctx, _ = m.s.tracer.Start(ctx, m.name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "connect_rpc")))
	return ctx
}

// endSpan ends the span of a call. f is nil if the call succeeded.
func (m *method) endSpan(ctx context.Context, f *apierror.Failure) {
	if m.s.tracer == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if f != nil {
		span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", f.Code.String()))
		// Only faults of the service mark the span as failed.
		if f.Code == connect.CodeInternal || f.Code == connect.CodeUnknown {
			span.SetStatus(codes.Error, f.Text)
		}
	}
	span.End()
}

// traceID returns the id of the call's trace, or "" if the trace is not sampled.
func traceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		return sc.TraceID().String()
	}
	return ""
}
