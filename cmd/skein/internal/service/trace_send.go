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

// traceSender sends spans by OTLP over HTTP. It is an otlptrace.Client: the library makes the messages and traceSender sends them. The
// client of the library would add gRPC and its gateway, whose health.proto this program has already.
type traceSender struct {
	url  string
	http *http.Client
}

// tracePath is the path at which collectors accept traces.
const tracePath = "/v1/traces"

// sendPatience is the timeout of a request. Spans that are not accepted by then are dropped.
const sendTimeout = 10 * time.Second

func newTraceSender(endpoint *url.URL) *traceSender {
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint = endpoint.JoinPath(tracePath)
	}
	return &traceSender{url: endpoint.String(), http: &http.Client{Timeout: sendTimeout}}
}

// Start is part of otlptrace.Client, as are Stop and UploadTraces.
func (*traceSender) Start(context.Context) error { return nil }

// Stop closes idle connections.
func (s *traceSender) Stop(context.Context) error {
	s.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, once.
func (s *traceSender) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	// On the wire it is an ExportTraceServiceRequest.
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
