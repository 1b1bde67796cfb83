package main

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

	"github.com/skein-feed/skein/projections"
)

// traceFlags say which calls are followed, and who is told.
type traceFlags struct {
	TraceEndpoint string  `help:"Send traces to this collector, by OTLP over HTTP, as http://127.0.0.1:4318." placeholder:"URL"`
	TraceSample   float64 `help:"The share of calls that is traced, where the caller has not decided." default:"0.001"`
}

// tracePatience is how long the last traces may take to be sent when the process ends.
const tracePatience = 5 * time.Second

// tracing returns a tracer, and what sends the rest at the end; nil: nothing is traced.
func (f *traceFlags) tracing(ctx context.Context, logger *slog.Logger) (_ trace.Tracer, end func(context.Context), err error) {
	if f.TraceSample < 0 || f.TraceSample > 1 {
		return nil, nil, usage("--trace-sample must be from 0 to 1, is %v", f.TraceSample)
	}
	if f.TraceEndpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	u, err := url.Parse(f.TraceEndpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, usage("--trace-endpoint %q must be http://HOST:PORT or https://HOST:PORT", f.TraceEndpoint)
	}
	exporter, err := otlptrace.New(ctx, newTraceSender(u))
	if err != nil {
		return nil, nil, fmt.Errorf("--trace-endpoint: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces are not sent", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(f.TraceSample))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "skein"), attribute.String("service.version", version().Version))),
	)
	return provider.Tracer("github.com/skein-feed/skein"), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, tracePatience)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("traces are not sent", "error", err)
		}
	}, nil
}

// traceFold tells of a fold to those who follow what was in it: one span in each of their traces.
func traceFold(tracer trace.Tracer, projection string, i projections.FoldInfo) {
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
