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

// tracePatience is how long sending the last spans may take when the process ends.
const lastSpansTimeout = 5 * time.Second

// Tracing returns a tracer that traces a share of the calls and sends spans to an endpoint, and a function that sends the last spans at
// the end.
func OpenTracer(ctx context.Context, endpoint *url.URL, sample float64, version string, logger *slog.Logger) (
	_ trace.Tracer, end func(context.Context), err error,
) {
	exporter, err := otlptrace.New(ctx, newTraceSender(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces are not sent", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sample))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "skein"), attribute.String("service.version", version))),
	)
	return provider.Tracer("github.com/skein-feed/skein"), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lastSpansTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("traces are not sent", "error", err)
		}
	}, nil
}

// traceFold adds a span of a fold to the trace of each traced call whose events it has folded.
func addFoldSpans(tracer trace.Tracer, projection string, i store.FoldInfo) {
	for _, parent := range i.Traces {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent})
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			continue
		}
		_, span := tracer.Start(ctx, "fold "+projection, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(i.Began),
			trace.WithAttributes(attribute.String("skein.projection", projection), attribute.Int("skein.envelopes", i.Envelopes),
				attribute.Int("skein.events", i.Events)))
		span.End()
	}
}
