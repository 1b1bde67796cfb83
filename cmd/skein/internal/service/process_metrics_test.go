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
	for _, name := range regexp.MustCompile("`(skein_[a-z_]+)`").FindAllStringSubmatch(section, -1) {
		documented[name[1]] = true
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

	for d := range descriptions {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]
		if !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/metrics.md has %s, but the program does not", name)
	}
}
