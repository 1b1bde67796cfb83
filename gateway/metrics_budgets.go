package gateway

import "github.com/prometheus/client_golang/prometheus"

// underWay collects how much of each budget is taken.
type underWay struct{ s *Server }

//nolint:gochecknoglobals // constants
var (
	budgetTaken = prometheus.NewDesc("skein_budget_used",
		"What is taken of each budget: calls under way, streams of each kind, bytes of requests and answers.", []string{"of"}, nil)
	budgetLimit = prometheus.NewDesc("skein_budget_limit", "How much of it may be taken at a time.", []string{"of"}, nil)
)

// Describe is part of prometheus.Collector.
func (underWay) Describe(to chan<- *prometheus.Desc) {
	to <- budgetTaken
	to <- budgetLimit
}

// Collect is part of prometheus.Collector.
func (u underWay) Collect(to chan<- prometheus.Metric) {
	for _, b := range u.s.budgets.all() {
		to <- prometheus.MustNewConstMetric(budgetTaken, prometheus.GaugeValue, float64(b.taken.Load()), b.what)
		to <- prometheus.MustNewConstMetric(budgetLimit, prometheus.GaugeValue, float64(b.most), b.what)
	}
}
