package service

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
)

// TestMaintenanceMetricsAreDocumented: the sections of docs/metrics.md from "Maintenance" on name
// every metric of this package and of package node, and no other.
func TestMaintenanceMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Maintenance\n")
	section, _, _ = strings.Cut(section, "\n## What to watch\n")

	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("`(skein_[a-z_]+)`").FindAllStringSubmatch(section, -1) {
		documented[match[1]] = true
	}

	// The channel has a buffer for all descriptions, because they are read after they were sent.
	descriptions := make(chan *prometheus.Desc, 100)
	newMaintenanceCollector(nil).Describe(descriptions)
	newDiskGuard(t.TempDir(), 0, slog.New(slog.DiscardHandler)).Describe(descriptions)
	newProcessCollector(nil, 0, Access{}).Describe(descriptions)
	node.NewCollector(nil).Describe(descriptions)

	folds, err := newFoldMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	appends, err := newAppendMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []prometheus.Collector{
		folds.visibleSeconds, folds.envelopes, folds.events, folds.commits, folds.committedBytes,
		appends.seconds, appends.events, appends.attempts,
	} {
		c.Describe(descriptions)
	}
	close(descriptions)

	// A description shows its name only in its text.
	namePattern := regexp.MustCompile(`fqName: "([^"]+)"`)
	implemented := map[string]bool{}
	for d := range descriptions {
		name := namePattern.FindStringSubmatch(d.String())[1]
		if implemented[name] {
			t.Errorf("got two descriptions of the metric %s, want one", name)
		}
		implemented[name] = true
	}

	for name := range implemented {
		if !documented[name] {
			t.Errorf("got no metric %s in docs/metrics.md, want it, because the program has it", name)
		}
	}
	for name := range documented {
		if !implemented[name] {
			t.Errorf("got the metric %s in docs/metrics.md, want none, because the program does not have it", name)
		}
	}
}
