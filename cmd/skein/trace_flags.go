package main

import (
	"context"
	"log/slog"
	"net/url"

	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
)

// traceFlags say which calls are traced, and where the traces are sent.
type traceFlags struct {
	TraceEndpoint string  `help:"Send traces to this collector, by OTLP over HTTP, such as http://127.0.0.1:4318." placeholder:"URL"`
	TraceSample   float64 `help:"Share of calls to trace, between 0 and 1, of those for which the caller has not decided." default:"0.001"`
}

// openTracing returns a tracer, and a function to call at the end that sends the last spans.
// Without --trace-endpoint the tracer is nil, and nothing is traced.
func (f *traceFlags) openTracing(ctx context.Context, logger *slog.Logger) (_ trace.Tracer, end func(context.Context), err error) {
	if f.TraceSample < 0 || f.TraceSample > 1 {
		return nil, nil, command.Usagef("--trace-sample must be from 0 to 1, is %v", f.TraceSample)
	}
	if f.TraceEndpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	u, err := url.Parse(f.TraceEndpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, command.Usagef("--trace-endpoint %q must be http://HOST:PORT or https://HOST:PORT", f.TraceEndpoint)
	}
	return service.OpenTracer(ctx, u, f.TraceSample, version().Version, logger)
}
