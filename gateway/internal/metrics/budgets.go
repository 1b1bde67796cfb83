package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/admission"
)

// budgetCollector collects the use of each budget.
type budgetCollector struct{ budgets *admission.Budgets }

//nolint:gochecknoglobals // constants
var (
	budgetUsed = prometheus.NewDesc("skein_budget_used",
		"How much of each budget is held: calls in work, streams of each kind, bytes of requests and answers.", []string{"of"}, nil)
	budgetLimit = prometheus.NewDesc("skein_budget_limit",
		"How much of it may be held at a time; +Inf if only each caller is bounded.", []string{"of"}, nil)
	budgetRefusals = prometheus.NewDesc("skein_budget_refusals_total",
		"How often the budget refused a call, or bytes of one.", []string{"of"}, nil)
	budgetWaiting = prometheus.NewDesc("skein_budget_waiting", "Calls that wait for their turn.", []string{"of"}, nil)
)

// Describe is part of prometheus.Collector.
func (budgetCollector) Describe(out chan<- *prometheus.Desc) {
	out <- budgetUsed
	out <- budgetLimit
	out <- budgetRefusals
	out <- budgetWaiting
}

// Collect is part of prometheus.Collector.
func (c budgetCollector) Collect(out chan<- prometheus.Metric) {
	for _, b := range c.budgets.All() {
		limit := float64(b.Limit)
		if b.Limit == admission.Unlimited {
			limit = math.Inf(1)
		}
		out <- prometheus.MustNewConstMetric(budgetUsed, prometheus.GaugeValue, float64(b.Used()), b.Name)
		out <- prometheus.MustNewConstMetric(budgetLimit, prometheus.GaugeValue, limit, b.Name)
		out <- prometheus.MustNewConstMetric(budgetRefusals, prometheus.CounterValue, float64(b.Refused()), b.Name)
		out <- prometheus.MustNewConstMetric(budgetWaiting, prometheus.GaugeValue, float64(b.Waiting()), b.Name)
	}
}

// admissionCollectors returns the collectors about connections, and about what is refused under
// overload.
func (o Observed) admissionCollectors() []prometheus.Collector {
	return []prometheus.Collector{
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_total",
			Help: "Connections that clients opened.",
		}, &o.Connections.Accepted),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_handed_over_total",
			Help: "Connections that were left to net/http, because what came on them was no plain call.",
		}, &o.Connections.HandedOver),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_evicted_total",
			Help: "Idle connections that were closed to make room for others.",
		}, &o.Connections.Evicted),
		counterOf(prometheus.CounterOpts{
			Name: "skein_connections_refused_total",
			Help: "Connections that were closed at once, because there were too many and each had a call that was worked on.",
		}, &o.Connections.Refused),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_shed_ratio",
			Help: "The part of reads, writes and streams that is refused at present because calls wait long for a processor.",
		}, o.Budgets.Shedder.RefusedPart),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_connections",
			Help: "Connections that are open.",
		}, func() float64 { return float64(o.Connections.Count()) }),
	}
}
