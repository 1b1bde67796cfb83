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

// MetricsReading holds the metrics of a service as they were at one time.
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
	reading := &MetricsReading{Time: time.Now()}
	reading.Families, err = parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s/metrics: %w", c.URL, err)
	}
	return reading, nil
}

// hasLabels reports whether a metric has all of these labels, given as name, value, name, value and
// so on.
func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if labelValue(m, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

// labelValue returns the value of a label of a metric, or the empty string if the metric does not
// have the label.
func labelValue(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// sum adds up the values of the metrics with a name and labels. The value of a histogram is the
// number of its observations. ok reports whether there is such a metric.
func (f *MetricsReading) sum(name string, labels ...string) (sum float64, ok bool) {
	for _, m := range f.Families[name].GetMetric() {
		if hasLabels(m, labels) {
			ok = true
			// A metric has only one of these types. The getters of the others return 0.
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, ok
}

// labelValues returns the different values that a label has among the metrics with a name, sorted.
func (f *MetricsReading) labelValues(name, label string) (values []string) {
	for _, m := range f.Families[name].GetMetric() {
		if v := labelValue(m, label); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// metricsChange is the change of the metrics of a service between two readings.
type metricsChange struct{ from, to *MetricsReading }

// seconds returns the time between the readings.
func (c metricsChange) seconds() float64 { return c.to.Time.Sub(c.from.Time).Seconds() }

// increase returns by how much the sum of the counters with a name and labels has increased. If the
// sum has decreased, the service was restarted and counts from 0, so increase returns the present
// sum.
func (c metricsChange) increase(name string, labels ...string) float64 {
	now, _ := c.to.sum(name, labels...)
	before, _ := c.from.sum(name, labels...)
	if now < before {
		return now
	}
	return now - before
}

// rate returns the increase per second.
func (c metricsChange) rate(name string, labels ...string) float64 {
	// The least time prevents a division by 0 if both readings have the same time.
	return c.increase(name, labels...) / max(c.seconds(), 1e-3)
}

// histogramBuckets adds up the histograms with a name and labels, all of which have the same
// bounds. counts[i] is the number of observations up to bounds[i]; the bounds ascend.
func (f *MetricsReading) histogramBuckets(name string, labels []string) (bounds, counts []float64) {
	for _, m := range f.Families[name].GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		for i, b := range m.GetHistogram().GetBucket() {
			if i == len(bounds) {
				bounds = append(bounds, b.GetUpperBound())
				counts = append(counts, 0)
			}
			counts[i] += float64(b.GetCumulativeCount())
		}
	}
	return bounds, counts
}

// quantile estimates the quantile q of the values that were observed between the readings. It
// estimates as Prometheus does, as if the values within a bucket were spread evenly. It returns
// false if no value was observed.
func (c metricsChange) quantile(q float64, name string, labels ...string) (value float64, ok bool) {
	bounds, counts := c.to.histogramBuckets(name, labels)
	if len(counts) == 0 {
		return 0, false
	}

	// If there are fewer observations than before, the service was restarted and counts from 0.
	last := len(counts) - 1
	_, before := c.from.histogramBuckets(name, labels)
	if len(before) == len(counts) && counts[last] >= before[last] {
		for i := range counts {
			counts[i] -= before[i]
		}
	}
	if counts[last] <= 0 {
		return 0, false
	}

	// The first bucket that reaches the rank contains the quantile.
	rank := q * counts[last]
	i, _ := slices.BinarySearch(counts, rank)
	if i >= last && last > 0 {
		// The last bound is infinite, so the greatest finite one is the best estimate.
		return bounds[last-1], true
	}
	if i == 0 {
		return bounds[0] * rank / counts[0], true
	}
	part := (rank - counts[i-1]) / (counts[i] - counts[i-1])
	return bounds[i-1] + (bounds[i]-bounds[i-1])*part, true
}
