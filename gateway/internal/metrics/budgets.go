package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/internal/admission"
)

// underWay collects how much of each budget is taken.
type underWay struct{ budgets *admission.Budgets }

//nolint:gochecknoglobals // constants
var (
	budgetTaken = prometheus.NewDesc("skein_budget_used",
		"The part of each budget in use: calls under way, streams of each kind, bytes of requests and answers.", []string{"of"}, nil)
	budgetLimit = prometheus.NewDesc("skein_budget_limit", "How much of it may be taken at a time.", []string{"of"}, nil)
)

// Describe is part of prometheus.Collector.
func (underWay) Describe(to chan<- *prometheus.Desc) {
	to <- budgetTaken
	to <- budgetLimit
}

// Collect is part of prometheus.Collector.
func (u underWay) Collect(to chan<- prometheus.Metric) {
	for _, b := range u.budgets.All() {
		to <- prometheus.MustNewConstMetric(budgetTaken, prometheus.GaugeValue, float64(b.Used()), b.Name())
		to <- prometheus.MustNewConstMetric(budgetLimit, prometheus.GaugeValue, float64(b.Limit()), b.Name())
	}
}

// admissionCollectors tell of connections, and of what is refused when there is too much.
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
		counterOf(prometheus.CounterOpts{
			Name: "skein_shed_calls_total",
			Help: "Calls that were refused because those before them waited long for a processor.",
		}, &o.Shed.Refused),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_shed_ratio",
			Help: "The part of calls that is refused at present for that reason.",
		}, o.Shed.Part),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_connections",
			Help: "Connections that are open.",
		}, func() float64 { return float64(o.Connections.Count()) }),
	}
}
