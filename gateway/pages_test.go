package gateway

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestMetricsCountCallsAndEvents makes some good and bad calls, and checks the metrics and their
// page.
func TestMetricsCountCallsAndEvents(t *testing.T) {
	w := newWorld(t)

	// Make a good call, a call of which each event is rejected, and two calls that are refused.
	at := w.publish(follow("ann", "bob"), follow("cid", "bob"))
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Fatal(err)
	}
	ask(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "a"), {}, {}}, AllowPartial: true})
	_, err := w.followers("", anyKind)(1, "", at)
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id")
	status, _, _ := w.post("/skein.v1.GraphService/ListFollowers", "application/json", strings.NewReader("{"))
	if status != http.StatusBadRequest {
		t.Errorf("malformed call: got status %d, want 400", status)
	}

	families := w.gatherWithLog()
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint of metrics: got the problems %v and error %v, want none", problems, err)
	}

	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{2, "skein_publish_events_total", nil},
		{1, "skein_publish_rejections_total", []string{"reason", "SELF_RELATION"}},
		{2, "skein_publish_rejections_total", []string{"reason", "UNKNOWN_KIND"}},
		{1, "skein_rpc_duration_seconds", []string{"method", "skein.v1.GraphService/ListFollowers", "code", "ok"}},
		{2, "skein_rpc_duration_seconds", []string{"method", "skein.v1.GraphService/ListFollowers", "code", "invalid_argument"}},
		{2, "skein_rpc_duration_seconds", []string{"method", "skein.v1.EventService/Publish"}},
		{0, "skein_projection_lag_envelopes", []string{"projection", "graph"}},
		{1, "skein_projection_position", []string{"projection", "graph"}},
		{1, "skein_projection_state", []string{"projection", "graph", "state", "ready"}},
		{0, "skein_projection_state", []string{"projection", "graph", "state", "failed"}},
		{0, "skein_log_rejected_events_total", []string{"projection", "graph"}},
		{0, "skein_rpc_in_flight", nil},
		{2, "skein_rpc_refusals_total", []string{"reason", "INVALID_FIELD"}},
		{1, "skein_log_up", nil},
		{1, "skein_log_last_sequence", nil},
		{1 << 30, "skein_log_max_bytes", nil},
		{1, "skein_build_info", []string{"version", "test"}},
	} {
		if got := valueOf(families, c.name, c.labels...); got != c.want {
			t.Errorf("%s %v: got %v, want %v", c.name, c.labels, got, c.want)
		}
	}

	// A machine that stands still for seconds interrupts the reading of the log, and makes the disk
	// slow. The metrics must not count more than that.
	engine, _ := w.store.Engine()
	for name, most := range map[string]uint64{
		"skein_log_read_interruptions_total": w.log.ErrorCounters().Interruptions,
		"skein_pebble_slow_disk_total":       engine.SlowDisk,
	} {
		if got := valueOf(families, name); got > float64(most) {
			t.Errorf("%s: got %v, want at most %d", name, got, most)
		}
	}

	const line = "skein_publish_events_total 2"
	status, _, page := w.get("/metrics")
	if status != http.StatusOK || !strings.Contains(string(page), line) {
		t.Errorf("/metrics: got status %d and the page\n%s\nwant 200 and %q", status, page, line)
	}
}

// TestMetricsAreDocumented checks that docs/metrics.md names every metric of the server and no
// other, apart from the section on the maintenance of the program.
func TestMetricsAreDocumented(t *testing.T) {
	w := newWorld(t)
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	serverPart, _, _ := strings.Cut(string(doc), "\n## Maintenance\n")
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("`(skein_[a-z_]+)`").FindAllStringSubmatch(serverPart, -1) {
		documented[match[1]] = true
	}

	// Metrics with labels exist only after they have counted something: refused and rejected calls,
	// and the growth of a disk, for which an earlier measurement is needed.
	_, _ = w.followers("", anyKind)(1, "", "")
	_, _ = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{{}}}))
	w.publish(follow("ann", "bob"))
	w.server.growth.DaysUntilFull(time.Now().Add(-2*time.Hour), 0, 1<<30)

	for _, f := range w.gatherWithLog() {
		if !documented[f.GetName()] {
			t.Errorf("metric %s is not in docs/metrics.md, want it documented", f.GetName())
		}
		delete(documented, f.GetName())
	}
	for name := range documented {
		t.Errorf("metric %s is in docs/metrics.md, but the server does not have it", name)
	}
}

// TestReflectionListsAllServices checks the service for tools such as grpcurl, which list services
// and read their descriptors. The list has this service in addition to those of the API.
func TestReflectionListsAllServices(t *testing.T) {
	w := newWorld(t)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	stream := grpcreflect.NewClient(&http.Client{Transport: h2}, w.url, connect.WithGRPC()).NewStream(t.Context())
	defer func() { _, _ = stream.Close() }()

	listed, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != len(services())+1 {
		t.Errorf("got the services %v, want %d", listed, len(services())+1)
	}
	if _, err := stream.FileContainingSymbol("skein.v1.GraphService"); err != nil {
		t.Errorf("file of GraphService: got error %v, want none", err)
	}
}
