package statuscmd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// MetricsReading are the metrics of a service at one time.
type MetricsReading struct {
	Time     time.Time
	Families map[string]*dto.MetricFamily
}

// Scrape reads the metrics of a service.
func Scrape(ctx context.Context, c *command.Client) (*MetricsReading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return nil, fmt.Errorf("%s/metrics: %s: %s", c.URL, res.Status, strings.TrimSpace(string(text)))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	f := &MetricsReading{Time: time.Now()}
	if f.Families, err = parser.TextToMetricFamilies(res.Body); err != nil {
		return nil, fmt.Errorf("%s/metrics: %w", c.URL, err)
	}
	return f, nil
}

// hasLabels selects metrics by labels, which are names and values alternately.
func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if labelValue(m, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

func labelValue(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// sum returns the sum of the metrics with a name and labels, and reports whether there is one.
func (f *MetricsReading) sum(name string, labels ...string) (sum float64, ok bool) {
	for _, m := range f.Families[name].GetMetric() {
		if hasLabels(m, labels) {
			ok = true
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, ok
}

// labelValues returns the values of a label among the metrics with a name, sorted.
func (f *MetricsReading) labelValues(name, label string) (values []string) {
	for _, m := range f.Families[name].GetMetric() {
		if v := labelValue(m, label); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// metricsChange is the change between two readings.
type metricsChange struct{ from, to *MetricsReading }

func (s metricsChange) seconds() float64 { return s.to.Time.Sub(s.from.Time).Seconds() }

// increase returns the growth of counters. A counter that has shrunk was reset by a restart, so all of it counts.
func (s metricsChange) increase(name string, labels ...string) float64 {
	now, _ := s.to.sum(name, labels...)
	before, _ := s.from.sum(name, labels...)
	if now < before {
		return now
	}
	return now - before
}

// rate returns the growth per second.
func (s metricsChange) rate(name string, labels ...string) float64 {
	return s.increase(name, labels...) / max(s.seconds(), 1e-3)
}

// histogramBuckets returns the numbers of observations up to each bound. The bounds rise.
func (f *MetricsReading) histogramBuckets(name string, labels []string) (bounds, counts []float64) {
	for _, m := range f.Families[name].GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		for i, b := range m.GetHistogram().GetBucket() {
			if i == len(bounds) {
				bounds, counts = append(bounds, b.GetUpperBound()), append(counts, 0)
			}
			counts[i] += float64(b.GetCumulativeCount())
		}
	}
	return bounds, counts
}

// quantile estimates a quantile of the observations, as Prometheus does: within a bucket all values are equally likely. It returns false
// if there were no observations.
func (s metricsChange) quantile(q float64, name string, labels ...string) (v float64, ok bool) {
	bounds, counts := s.to.histogramBuckets(name, labels)
	n := len(counts)
	// If there are fewer observations than before, the service was restarted.
	if _, before := s.from.histogramBuckets(name, labels); n > 0 && len(before) == n && counts[n-1] >= before[n-1] {
		for i := range counts {
			counts[i] -= before[i]
		}
	}
	if n == 0 || counts[n-1] <= 0 {
		return 0, false
	}
	rank := q * counts[n-1]
	i, _ := slices.BinarySearch(counts, rank)
	switch {
	case i >= n-1 && n > 1: // beyond the last bound, which is infinite
		return bounds[n-2], true
	case i == 0:
		return bounds[0] * rank / counts[0], true
	}
	return bounds[i-1] + (bounds[i]-bounds[i-1])*(rank-counts[i-1])/(counts[i]-counts[i-1]), true
}
