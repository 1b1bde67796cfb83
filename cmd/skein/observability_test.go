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

// expressions returns the queries of the dashboard and the alerts, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	read := func(name string, into any, parse func([]byte, any) error) {
		t.Helper()
		data, err := os.ReadFile("../../docs/observability/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := parse(data, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	read("alerts.yml", &rules, yaml.Unmarshal)
	book, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			queries["alert "+r.Alert] = r.Expr
			expected := runbookURL + "#" + strings.ToLower(r.Alert)
			if got := r.Annotations["runbook_url"]; got != expected {
				t.Errorf("alert %s: the annotation runbook_url is %q, expected %q", r.Alert, got, expected)
			}
			if strings.Count(string(book), "\n### "+r.Alert+"\n") != 1 {
				t.Errorf("docs/runbook.md does not say what to do about %s", r.Alert)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(book), -1) {
		if queries["alert "+m[1]] == "" {
			t.Errorf("docs/runbook.md tells of %s, which is no alert", m[1])
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read("dashboard.json", &dashboard, json.Unmarshal)
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			queries[fmt.Sprintf("panel %d, %s, query %d", p.ID, p.Title, i)] = target.Expr
		}
	}
	if len(queries) < 80 {
		t.Fatalf("only %d expressions", len(queries))
	}
	return queries
}

// TestDashboardAndAlertsNameExistingMetrics demands that the dashboard and the alerts use metrics
// that the service has, with labels that these metrics have. The runbook must have each alert and
// no other. The dashboard or an alert must use every metric, except those that the test lists.
func TestDashboardAndAlertsNameExistingMetrics(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(doc), "\n## What to watch\n")

	// Read the metrics and their labels from the page. TestMaintenanceMetricsAreDocumented, and a
	// similar test of the gateway, check that the page is complete.
	labels := map[string]map[string]bool{}
	name := regexp.MustCompile("`([a-z_]+)`")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`skein_") {
			continue
		}
		for _, metric := range name.FindAllStringSubmatch(cells[1], -1) {
			metricLabels := map[string]bool{"job": true, "instance": true}
			for _, label := range name.FindAllStringSubmatch(cells[2], -1) {
				metricLabels[label[1]] = true
			}
			if strings.HasPrefix(cells[3], " (histogram)") {
				metricLabels["le"] = true
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					labels[metric[1]+part] = metricLabels
				}
				continue
			}
			labels[metric[1]] = metricLabels
		}
	}

	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	for metric := range scrapeMetrics(t.Context(), t, api) {
		if strings.HasPrefix(metric, "go_") || strings.HasPrefix(metric, "process_") {
			labels[metric] = map[string]bool{"job": true, "instance": true, "quantile": true}
		}
	}
	labels["up"] = map[string]bool{"job": true, "instance": true}

	asked := regexp.MustCompile(`\b((?:skein|go|process)_[a-z_]+|up)(\{[^}]*\})?`)
	label := regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`)

	used := map[string]bool{}
	for where, expr := range expressions(t) {
		found := asked.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 && !strings.Contains(expr, "ALERTS{") {
			t.Errorf("%s asks for no metric: %s", where, expr)
		}
		for _, m := range found {
			knownLabels, ok := labels[m[1]]
			if !ok {
				t.Errorf("%s asks for %s, which there is not", where, m[1])
				continue
			}
			used[m[1]] = true
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if !knownLabels[l[1]] {
					t.Errorf("%s asks for the label %s of %s, which it does not have", where, l[1], m[1])
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
		used[metric] = true
	}
	for metric := range labels {
		base := strings.NewReplacer("_bucket", "", "_sum", "", "_count", "").Replace(metric)
		if strings.HasPrefix(metric, "skein_") && !used[metric] && !used[base+"_bucket"] && !used[base+"_sum"] {
			t.Errorf("neither the dashboard nor an alert shows %s", metric)
		}
	}
}
