package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// runbookURL is the page that the alerts link to. It is in the public repository, because people
// read alerts where they have no clone.
const runbookURL = "https://github.com/skein-feed/skein/blob/main/docs/runbook.md"

// readExpressions returns the queries of the dashboard and the alerts, by where they are. It checks
// that each alert is in the runbook and links to its section there.
func readExpressions(t *testing.T) map[string]string {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	readObservabilityFile(t, "alerts.yml", &rules, yaml.Unmarshal)
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}

	queries := map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			queries["alert "+r.Alert] = r.Expr
			want := runbookURL + "#" + strings.ToLower(r.Alert)
			if got := r.Annotations["runbook_url"]; got != want {
				t.Errorf("alert %s: the annotation runbook_url is %q, want %q", r.Alert, got, want)
			}
			if n := strings.Count(string(runbook), "\n### "+r.Alert+"\n"); n != 1 {
				t.Errorf("docs/runbook.md has %d sections about the alert %s, want 1", n, r.Alert)
			}
		}
	}

	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		if queries["alert "+m[1]] == "" {
			t.Errorf("docs/runbook.md has a section about %s, which is no alert", m[1])
		}
	}

	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	readObservabilityFile(t, "dashboard.json", &dashboard, json.Unmarshal)
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			queries[fmt.Sprintf("panel %d, %s, query %d", p.ID, p.Title, i)] = target.Expr
		}
	}

	// With fewer queries, a part of the files was not understood.
	const minQueries = 80
	if len(queries) < minQueries {
		t.Fatalf("the dashboard and the alerts have %d queries, want at least %d", len(queries), minQueries)
	}
	return queries
}

// readObservabilityFile reads a file of docs/observability and parses it.
func readObservabilityFile(t *testing.T, name string, into any, parse func([]byte, any) error) {
	t.Helper()
	data, err := os.ReadFile("../../docs/observability/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := parse(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// readDocumentedMetrics returns the metrics of docs/metrics.md, and the labels of each, including
// those that Prometheus adds.
func readDocumentedMetrics(t *testing.T) map[string]map[string]bool {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(string(doc), "\n## What to watch\n")

	// Rows have the names of metrics in the first column, their labels in the second, and a
	// description in the third. TestMaintenanceMetricsAreDocumented, and a similar test of the
	// gateway, check that the page is complete.
	labelsOf := map[string]map[string]bool{}
	quotedName := regexp.MustCompile("`([a-z_]+)`")
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`skein_") {
			continue
		}

		for _, metric := range quotedName.FindAllStringSubmatch(cells[1], -1) {
			labels := map[string]bool{"job": true, "instance": true}
			for _, label := range quotedName.FindAllStringSubmatch(cells[2], -1) {
				labels[label[1]] = true
			}
			if !strings.HasPrefix(cells[3], " (histogram)") {
				labelsOf[metric[1]] = labels
				continue
			}
			labels["le"] = true
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				labelsOf[metric[1]+suffix] = labels
			}
		}
	}
	return labelsOf
}

// TestDashboardAndAlertsNameExistingMetrics demands that the dashboard and the alerts use metrics
// that the service has, with labels that these metrics have. The runbook must have each alert and
// no other. The dashboard or an alert must use every metric, except those that the test lists.
func TestDashboardAndAlertsNameExistingMetrics(t *testing.T) {
	labelsOf := readDocumentedMetrics(t)

	// The page does not list the metrics of the Go runtime and of the process, so ask a service.
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	for metric := range scrapeMetrics(t.Context(), t, api) {
		if strings.HasPrefix(metric, "go_") || strings.HasPrefix(metric, "process_") {
			labelsOf[metric] = map[string]bool{"job": true, "instance": true, "quantile": true}
		}
	}
	// Prometheus itself makes this metric.
	labelsOf["up"] = map[string]bool{"job": true, "instance": true}

	// Check the metrics and labels of every query.
	selector := regexp.MustCompile(`\b((?:skein|go|process)_[a-z_]+|up)(\{[^}]*\})?`)
	labelMatcher := regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`)
	isUsed := map[string]bool{}
	for where, expr := range readExpressions(t) {
		selectors := selector.FindAllStringSubmatch(expr, -1)
		if len(selectors) == 0 && !strings.Contains(expr, "ALERTS{") {
			t.Errorf("%s asks for no metric: %s", where, expr)
		}
		for _, groups := range selectors {
			metric, matchers := groups[1], groups[2]
			labels, exists := labelsOf[metric]
			if !exists {
				t.Errorf("%s asks for the metric %s, which does not exist", where, metric)
				continue
			}
			isUsed[metric] = true
			for _, label := range labelMatcher.FindAllStringSubmatch(matchers, -1) {
				if !labels[label[1]] {
					t.Errorf("%s asks for the label %s of %s, which it does not have", where, label[1], metric)
				}
			}
		}
	}

	// These metrics are for people who look at one process.
	for _, metric := range []string{
		"skein_build_info", "skein_projection_position", "skein_log_last_sequence", "skein_archive_position",
		"skein_audit_rounds_total", "skein_audit_round_seconds", "skein_audit_no_disk", "skein_fold_envelopes_total",
		"skein_fold_commits_total",
	} {
		isUsed[metric] = true
	}

	// A histogram is used if its buckets or its sum are.
	suffixes := strings.NewReplacer("_bucket", "", "_sum", "", "_count", "")
	for metric := range labelsOf {
		base := suffixes.Replace(metric)
		if strings.HasPrefix(metric, "skein_") && !isUsed[metric] && !isUsed[base+"_bucket"] && !isUsed[base+"_sum"] {
			t.Errorf("neither the dashboard nor an alert uses the metric %s", metric)
		}
	}
}
