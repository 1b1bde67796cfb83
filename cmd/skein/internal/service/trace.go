package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/projections/store"
)

// lastSpansTimeout is how long sending the last spans may take when the process ends.
const lastSpansTimeout = 5 * time.Second

// OpenTracer returns a tracer that traces a share of the calls, from 0 to 1, and sends their spans
// to an endpoint. The process must call flush before it ends, to send the last spans.
func OpenTracer(ctx context.Context, endpoint *url.URL, share float64, version string, logger *slog.Logger) (
	_ trace.Tracer, flush func(context.Context), err error,
) {
	exporter, err := otlptrace.New(ctx, newTraceSender(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces could not be sent", "error", err) }))

	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		// A call that its caller already traces is traced in any case.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "skein"), attribute.String("service.version", version))),
	)
	flush = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lastSpansTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("traces could not be sent", "error", err)
		}
	}
	return provider.Tracer("github.com/skein-feed/skein"), flush, nil
}

// addFoldSpans adds a span to the trace of each traced call whose events a projection has folded.
// The span shows when they were folded.
func addFoldSpans(tracer trace.Tracer, projection string, i store.FoldInfo) {
	for _, traceparent := range i.Traces {
		carrier := propagation.MapCarrier{"traceparent": traceparent}
		ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			continue
		}
		_, span := tracer.Start(ctx, "fold "+projection,
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithTimestamp(i.Began),
			trace.WithAttributes(
				attribute.String("skein.projection", projection),
				attribute.Int("skein.envelopes", i.Envelopes),
				attribute.Int("skein.events", i.Events),
			))
		span.End()
	}
}
