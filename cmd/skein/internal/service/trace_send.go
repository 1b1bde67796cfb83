package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// traceSender sends spans to a collector by OTLP over HTTP. It implements otlptrace.Client: the
// library encodes the spans, and traceSender only sends them. The HTTP client of the library is not
// used, because it links gRPC and its gateway, whose health.proto conflicts with the one that this
// program links.
type traceSender struct {
	url  string
	http *http.Client
}

// tracePath is the path at which collectors accept traces.
const tracePath = "/v1/traces"

// sendTimeout limits a request. Spans that the collector has not accepted by then are dropped.
const sendTimeout = 10 * time.Second

// newTraceSender returns a sender to a collector. The endpoint may leave out the path.
func newTraceSender(endpoint *url.URL) *traceSender {
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint = endpoint.JoinPath(tracePath)
	}
	return &traceSender{url: endpoint.String(), http: &http.Client{Timeout: sendTimeout}}
}

// Start is part of otlptrace.Client. There is nothing to start.
func (*traceSender) Start(context.Context) error { return nil }

// Stop is part of otlptrace.Client.
func (s *traceSender) Stop(context.Context) error {
	s.http.CloseIdleConnections()
	return nil
}

// UploadTraces is part of otlptrace.Client. It sends the spans once, without a retry.
func (s *traceSender) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	// The protocol defines the message ExportTraceServiceRequest, which has the same encoding as
	// TracesData.
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")

	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s: %.200q", s.url, res.Status, text)
	}
	return nil
}
