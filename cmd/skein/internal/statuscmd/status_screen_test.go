package statuscmd

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestQuantileCountsOnlyNewObservations: a quantile is that of the values between the two readings,
// and after a restart that of all values.
func TestQuantileCountsOnlyNewObservations(t *testing.T) {
	parseReading := func(text string) *MetricsReading {
		t.Helper()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return &MetricsReading{Families: families}
	}
	// histogramText returns the metrics of a histogram. The counts are cumulative: each is the
	// number of values up to the bound of its bucket.
	histogramText := func(method string, counts ...int) string {
		var text strings.Builder
		for i, bound := range []string{"1", "2", "4", "+Inf"} {
			fmt.Fprintf(&text, "h_bucket{method=%q,le=%q} %d\n", method, bound, counts[i])
		}
		fmt.Fprintf(&text, "h_sum{method=%q} 1\nh_count{method=%q} %d\n", method, method, counts[3])
		return text.String()
	}

	// From the first reading to the second, method a observed ten values between 1 and 2. Method b
	// observed ten values up to 1, ten between 1 and 2, and ten above 4.
	const typeLine = "# TYPE h histogram\n"
	from := parseReading(typeLine + histogramText("a", 100, 100, 100, 100) + histogramText("b", 0, 0, 0, 0))
	to := parseReading(typeLine + histogramText("a", 100, 110, 110, 110) + histogramText("b", 10, 20, 20, 30))
	for _, c := range []struct {
		name     string
		from, to *MetricsReading
		q        float64
		labels   []string
		want     float64
	}{
		{"median of the second bucket", from, to, .5, []string{"method", "a"}, 1.5},
		{"near the end of the second bucket", from, to, .99, []string{"method", "a"}, 1.99},
		{"median of several buckets", from, to, .5, []string{"method", "b"}, 1.5},
		{"within the first bucket", from, to, .1, []string{"method", "b"}, .3},
		{"above the last finite bound", from, to, .99, []string{"method", "b"}, 4},
		{"all methods", from, to, .5, nil, 1.5},
		{"the service was restarted", to, from, .5, []string{"method", "a"}, .5},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := metricsChange{c.from, c.to}.quantile(c.q, "h", c.labels...)
			if !ok || math.Abs(got-c.want) > 1e-9 {
				t.Errorf("quantile %v: got %v, known %t, want %v", c.q, got, ok, c.want)
			}
		})
	}

	t.Run("nothing was observed", func(t *testing.T) {
		got, ok := metricsChange{to, to}.quantile(.5, "h", "method", "a")
		if ok {
			t.Errorf("quantile 0.5: got %v, want none", got)
		}
	})
}

// TestScreenIsCutToTheTerminal: 30 lines of 100 characters are cut to the size that is assumed if
// the terminal does not tell its own, 24 lines of 80.
func TestScreenIsCutToTheTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "no terminal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	var out bytes.Buffer
	screen := strings.Repeat(strings.Repeat("x", 100)+"\n", 30)
	if err := redrawTerminal(&out, f, screen); err != nil {
		t.Fatal(err)
	}

	got := out.String()
	if lines := strings.Count(got, "\n") + 1; lines != 24 {
		t.Errorf("got %d lines, want 24", lines)
	}
	if n := strings.Count(got, "x"); n != 24*80 {
		t.Errorf("got %d characters, want %d", n, 24*80)
	}
	if !strings.HasPrefix(got, moveToTopLeft) {
		t.Errorf("got a screen that begins with %.20q, want %q", got, moveToTopLeft)
	}
}
