package main

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// collector takes traces as a collector of OpenTelemetry does.
type collector struct {
	mu    sync.Mutex
	spans []*otlp.Span
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var sent otlp.TracesData
	if err != nil || proto.Unmarshal(data, &sent) != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resourceSpans := range sent.GetResourceSpans() {
		for _, scopeSpans := range resourceSpans.GetScopeSpans() {
			c.spans = append(c.spans, scopeSpans.GetSpans()...)
		}
	}
}

// TestSampledCallsAreTracedThroughEveryFold demands that a call that its caller samples has spans
// in the caller's trace, from Connect over the append to the fold of every projection, whichever
// way the call came. A call that is not sampled must leave nothing, not even beside its envelope.
func TestSampledCallsAreTracedThroughEveryFold(t *testing.T) {
	t.Parallel()
	var c collector
	at := httptest.NewServer(&c)
	defer at.Close()
	flags := traceFlags{TraceEndpoint: at.URL, TraceSample: 0}
	tracer, end, err := flags.openTracing(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) { o.Tracer = tracer })
	const (
		followed = "0af7651916cd43dd8448eb211c80319c"
		another  = "0af7651916cd43dd8448eb211c80319d"
		ignored  = "0af7651916cd43dd8448eb211c80319e"
	)
	send := func(parent, user string, options ...connect.ClientOption) {
		t.Helper()
		req := connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", user)}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		})
		if parent != "" {
			req.Header().Set("Traceparent", parent)
		}
		if _, err := skeinv1connect.NewEventServiceClient(api.HTTP, api.URL, options...).Publish(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	send("00-"+followed+"-b7ad6b7169203331-01", "bob") // by the loop for plain calls
	send("00-"+another+"-b7ad6b7169203331-01", "cid", connect.WithProtoJSON())
	send("00-"+ignored+"-b7ad6b7169203331-00", "dan")
	send("", "eve")
	send("00-nonsense-01", "fay")
	stop()
	end(t.Context())

	names := map[string][]string{}
	for _, s := range c.spans {
		id := hex.EncodeToString(s.GetTraceId())
		names[id] = append(names[id], s.GetName())
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || len(s.GetParentSpanId()) == 0 {
			t.Errorf("%v", s)
		}
	}
	want := []string{"append", "fold counters", "fold graph", "fold inbox", "fold notifications", "fold seen", "skein.v1.EventService/Publish"}
	for _, id := range []string{followed, another} {
		if got := slices.Sorted(slices.Values(names[id])); !slices.Equal(got, want) {
			t.Errorf("trace %s has %v, want %v", id, got, want)
		}
	}
	if len(names) != 2 {
		t.Errorf("traces: %v", names)
	}
}

// TestInvalidTraceFlagsAreRefused also demands that no tracer is opened without an endpoint.
func TestInvalidTraceFlagsAreRefused(t *testing.T) {
	for _, f := range []traceFlags{{TraceSample: -1}, {TraceSample: 1.5}, {TraceEndpoint: "localhost:4318"}, {TraceEndpoint: "ftp://x"}} {
		if _, _, err := f.openTracing(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--trace-") {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if tracer, _, err := (&traceFlags{}).openTracing(t.Context(), nil); tracer != nil || err != nil {
		t.Errorf("%v, %v", tracer, err)
	}
}
