package statuscmd

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
)

// maxMethods is how many methods of the API the screen shows, those with the most calls first.
const maxMethods = 8

// statusScreen draws the screen of `skein status --watch` from two readings of the metrics.
type statusScreen struct {
	metricsChange

	url string
	buf bytes.Buffer
}

// Screen returns the text that shows what the service at a URL did between two readings of its
// metrics.
func Screen(url string, from, to *MetricsReading) string {
	s := &statusScreen{url: url, metricsChange: metricsChange{from, to}}
	s.drawHeader()
	s.drawCalls()
	s.drawPublishing()
	s.drawLog()
	s.drawProjections()
	s.drawCaches()
	s.drawDisk()
	s.drawMaintenance()
	s.drawProcess()
	return s.buf.String()
}

func (s *statusScreen) printf(format string, args ...any) { fmt.Fprintf(&s.buf, format, args...) }

// gauge returns the value of a gauge in the later reading; 0 if there is no such gauge.
func (s *statusScreen) gauge(name string, labels ...string) float64 {
	v, _ := s.to.sum(name, labels...)
	return v
}

func (s *statusScreen) drawHeader() {
	version := ""
	if versions := s.to.labelValues("skein_build_info", "version"); len(versions) > 0 {
		version = " " + versions[0]
	}
	uptime := "?"
	if started := s.gauge("process_start_time_seconds"); started > 0 {
		uptime = AgeText(float64(s.to.Time.UnixMilli())/1000 - started)
	}
	s.printf("skein%s at %s, up %s, %s (over %.1f s)\n\n", version, s.url, uptime, s.to.Time.Format(time.TimeOnly), s.seconds())
}

func (s *statusScreen) drawCalls() {
	const calls = "skein_rpc_duration_seconds"
	s.printf("calls      %s/s, %.0f under way, %.0f watching", rateText(s.rate(calls)), s.gauge("skein_rpc_in_flight"),
		s.gauge("skein_watch_streams"))
	if n := s.increase("skein_rpc_internal_errors_total"); n > 0 {
		s.printf("; %.0f INTERNAL ERRORS", n)
	}
	for _, reason := range s.to.labelValues("skein_rpc_refusals_total", "reason") {
		if r := s.rate("skein_rpc_refusals_total", "reason", reason); r > 0 {
			s.printf("; %s %s/s", reason, rateText(r))
		}
	}
	s.printf("\n")

	// Show the methods that were called between the readings, those with the most calls first.
	methods := s.to.labelValues(calls, "method")
	rates := map[string]float64{}
	for _, m := range methods {
		rates[m] = s.rate(calls, "method", m)
	}
	methods = slices.DeleteFunc(methods, func(m string) bool { return rates[m] == 0 })
	slices.SortStableFunc(methods, func(a, b string) int { return cmp.Compare(rates[b], rates[a]) })
	if len(methods) == 0 {
		return
	}

	s.printf("\n")
	t := command.NewTable(&s.buf, "METHOD", "CALLS/S", "P50", "P99")
	for _, m := range methods[:min(len(methods), maxMethods)] {
		t.Row(strings.TrimPrefix(m, "skein.v1."), rateText(rates[m]), s.quantileText(.5, calls, "method", m), s.quantileText(.99, calls, "method", m))
	}
	_ = t.Flush() // a bytes.Buffer does not fail
}

// quantileText returns a quantile of a histogram of seconds for people.
func (s *statusScreen) quantileText(q float64, name string, labels ...string) string {
	v, ok := s.quantile(q, name, labels...)
	if !ok {
		return "-"
	}
	return LatencyText(v)
}

func (s *statusScreen) drawPublishing() {
	const appends = "skein_log_append_duration_seconds"
	s.printf("\npublish    %s events/s in %s envelopes/s, on disk in %s (p50), %s (p99)", rateText(s.rate("skein_publish_events_total")),
		rateText(s.rate(appends, "result", "ok")), s.quantileText(.5, appends), s.quantileText(.99, appends))
	if n := s.increase(appends, "result", "failed"); n > 0 {
		s.printf("; %.0f FAILED", n)
	}
	s.printf("\n")
}

func (s *statusScreen) drawLog() {
	s.printf("log        ")
	if s.gauge("skein_log_up") == 0 {
		s.printf("DOES NOT ANSWER\n")
		return
	}
	s.printf("%s", BytesText(s.gauge("skein_log_bytes")))
	if maxBytes, ok := s.to.sum("skein_log_max_bytes"); ok {
		s.printf(" of %s", BytesText(maxBytes))
	}
	if seconds, ok := s.to.sum("skein_log_full_in_seconds"); ok {
		s.printf(", full in %s", AgeText(seconds))
	}
	s.printf(", read by %.0f", s.gauge("skein_log_consumers"))
	if n := s.gauge("skein_log_missing_envelopes"); n > 0 {
		s.printf("; HAS A HOLE: %s lost, and no projection folds beyond it (`skein status` names it)",
			command.Plural(uint64(n), "envelope is", "envelopes are"))
	}
	s.printf("\n\n")
}

func (s *statusScreen) drawProjections() {
	const (
		lag     = "skein_projection_lag_envelopes"
		visible = "skein_publish_visible_seconds"
	)
	t := command.NewTable(&s.buf, "PROJECTION", "STATE", "ENVELOPES BEHIND", "LAG", "EVENTS/S", "VISIBLE P50", "P99", "DISK", "TABLES", "DEBT")
	for _, p := range s.to.labelValues(lag, "projection") {
		state := "?"
		for _, st := range s.to.labelValues("skein_projection_state", "state") {
			if s.gauge("skein_projection_state", "projection", p, "state", st) == 1 {
				state = st
			}
		}
		t.Row(
			p,
			state,
			strconv.FormatFloat(s.gauge(lag, "projection", p), 'f', 0, 64),
			AgeText(s.gauge("skein_projection_lag_seconds", "projection", p)),
			rateText(s.rate("skein_fold_events_total", "projection", p)),
			s.quantileText(.5, visible, "projection", p),
			s.quantileText(.99, visible, "projection", p),
			BytesText(s.gauge("skein_projection_disk_bytes", "projection", p)),
			strconv.FormatFloat(s.gauge("skein_pebble_read_amplification", "projection", p), 'f', 0, 64),
			BytesText(s.gauge("skein_pebble_compaction_debt_bytes", "projection", p)),
		)
	}
	_ = t.Flush() // a bytes.Buffer does not fail
}

// hitRateText returns the hit rate of a cache for people. lookupsMetric is the name of the metric
// that counts the lookups in the cache.
func (s *statusScreen) hitRateText(cache, lookupsMetric string) string {
	lookups := s.rate(lookupsMetric)
	if lookups == 0 {
		return cache + " not asked"
	}
	return fmt.Sprintf("%s %.1f %% of %s/s", cache, 100*s.rate(lookupsMetric, "answer", "hit")/lookups, rateText(lookups))
}

// drawCaches draws the caches and the pages of feeds, whose cost depends on them.
func (s *statusScreen) drawCaches() {
	s.printf("\ncaches     %s in %s of %s; %s in %s\n", s.hitRateText("blocks", "skein_block_cache_lookups_total"),
		BytesText(s.gauge("skein_block_cache_bytes")), BytesText(s.gauge("skein_block_cache_max_bytes")),
		s.hitRateText("follows", "skein_query_cache_lookups_total"), BytesText(s.gauge("skein_query_cache_bytes")))

	// The least rate prevents a division by 0 if no page was read.
	pages := s.rate("skein_feed_pages_total")
	s.printf("feeds      %s pages/s, %.2f outboxes a page\n", rateText(pages), s.rate("skein_feed_outboxes_opened_total")/max(pages, 1e-9))
}

func (s *statusScreen) drawDisk() {
	s.printf("disk       %s free, %s kept free", BytesText(s.gauge("skein_disk_free_bytes")), BytesText(s.gauge("skein_disk_reserve_bytes")))
	if s.gauge("skein_disk_refusing") == 1 {
		s.printf("; PUBLISH IS REFUSED")
	}
	if s.gauge("skein_disk_paused") == 1 {
		s.printf("; FOLDS ARE PAUSED")
	}
	s.printf("\n")
}

// drawMaintenance draws the archive, the snapshots and the auditor, as far as the process has them.
func (s *statusScreen) drawMaintenance() {
	if _, ok := s.to.sum("skein_archive_position"); ok {
		s.printf("archive    %s behind, %s in %.0f files, %s", AgeText(s.gauge("skein_archive_lag_seconds")),
			BytesText(s.gauge("skein_archive_bytes")), s.gauge("skein_archive_segments"),
			command.Plural(uint64(s.gauge("skein_archive_waiting_envelopes")), "envelope waits", "envelopes wait"))
		if s.gauge("skein_archive_failing") == 1 {
			s.printf("; DOES NOT CONTINUE")
		}
		s.printf("\n")
	}

	if taken, ok := s.to.sum("skein_snapshots_total"); ok {
		s.printf("snapshots  %.0f taken, %.0f failed", taken, s.gauge("skein_snapshot_failures_total"))
		if age, ok := s.to.sum("skein_snapshot_age_seconds"); ok {
			s.printf(", the last %s ago", AgeText(age))
		}
		s.printf("\n")
	}

	if _, ok := s.to.sum("skein_audit_checks_total"); ok {
		s.printf("audit      %s checks/s, %.0f wait; %.0f findings, %.0f rows repaired", rateText(s.rate("skein_audit_checks_total")),
			s.gauge("skein_audit_queued"), s.gauge("skein_audit_findings_total"), s.gauge("skein_audit_repaired_rows_total"))
		if n := s.gauge("skein_audit_unexplained_total"); n > 0 {
			s.printf("; %.0f UNEXPLAINED", n)
		}
		s.printf("\n")
	}
}

func (s *statusScreen) drawProcess() {
	// Every projection counts the same malformed events, so the count of one is enough.
	if n, ok := s.to.sum("skein_log_rejected_events_total", "projection", "graph"); ok && n > 0 {
		s.printf("refused    %.0f malformed events of the log\n", n)
	}
	s.printf("process    %.2f cores, %s resident, %.0f goroutines, %.0f files\n", s.rate("process_cpu_seconds_total"),
		BytesText(s.gauge("process_resident_memory_bytes")), s.gauge("go_goroutines"), s.gauge("process_open_fds"))
}

// BytesText returns a size in bytes for people.
func BytesText(n float64) string { return events.FormatSize(uint64(max(0, n))) }

// rateText returns a rate per second for people, without decimals if it is a whole number or large.
func rateText(rate float64) string {
	if rate >= 100 || rate == math.Trunc(rate) {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// LatencyText returns the duration of something short, given in seconds, for people.
func LatencyText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// AgeText returns a duration that may be long, given in seconds, for people.
func AgeText(seconds float64) string {
	// More than 1e9 seconds, some 32 years, could overflow a duration.
	d := time.Duration(min(seconds, 1e9) * float64(time.Second))
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}
