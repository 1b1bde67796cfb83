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

func TestQuantilesOfWhatHappenedSince(t *testing.T) {
	read := func(text string) *MetricsReading {
		t.Helper()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return &MetricsReading{Families: families}
	}
	histogram := func(method string, counts ...int) string {
		text := ""
		for i, le := range []string{"1", "2", "4", "+Inf"} {
			text += fmt.Sprintf("h_bucket{method=%q,le=%q} %d\n", method, le, counts[i])
		}
		return text + fmt.Sprintf("h_sum{method=%q} 1\nh_count{method=%q} %d\n", method, method, counts[3])
	}
	const kind = "# TYPE h histogram\n"
	from := read(kind + histogram("a", 100, 100, 100, 100) + histogram("b", 0, 0, 0, 0))
	to := read(kind + histogram("a", 100, 110, 110, 110) + histogram("b", 10, 20, 20, 30))
	for _, c := range []struct {
		q      float64
		labels []string
		want   float64
	}{
		{.5, []string{"method", "a"}, 1.5},
		{.99, []string{"method", "a"}, 1.99},
		{.5, []string{"method", "b"}, 1.5},
		{.1, []string{"method", "b"}, .3},
		{.99, []string{"method", "b"}, 4}, // above the last bound
		{.5, nil, 1.5},
	} {
		if got, ok := (metricsChange{from, to}).quantile(c.q, "h", c.labels...); !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v of %v: %v %v, want %v", c.q, c.labels, got, ok, c.want)
		}
	}
	if got, ok := (metricsChange{to, to}).quantile(.5, "h", "method", "a"); ok {
		t.Errorf("nothing was observed: %v", got)
	}
	// A service that was started again counts from 0.
	if got, ok := (metricsChange{to, from}).quantile(.5, "h", "method", "a"); !ok || got != .5 {
		t.Errorf("started again: %v %v", got, ok)
	}
}

func TestScreenFitsTheTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "no terminal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if err := redrawTerminal(&out, f, strings.Repeat(strings.Repeat("x", 100)+"\n", 30)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 23 || strings.Count(got, "x") != 24*80 || !strings.HasPrefix(got, moveToTopLeft) {
		t.Errorf("%q", got)
	}
}
