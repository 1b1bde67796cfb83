package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/events/eventlog"
)

// logCollector asks the log for its state when metrics are collected.
type logCollector struct {
	Observed

	up, bytes, maxBytes, fullIn, last, consumers, reconnects, interruptions, missing *prometheus.Desc
}

// logTimeout is how long a scrape waits for the log. Scrapes usually time out after ten seconds,
// and the other metrics must still be returned.
const logTimeout = time.Second

func newLogCollector(o Observed) *logCollector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &logCollector{
		Observed: o, up: desc("skein_log_up", "1 while the log answers and can take events."),
		bytes:         desc("skein_log_bytes", "Size of the log, without what is in the archive only."),
		maxBytes:      desc("skein_log_max_bytes", "Size at which the log refuses more."),
		fullIn:        desc("skein_log_full_in_seconds", "When the log is full by its slowest growth over the last ten minutes to six hours."),
		last:          desc("skein_log_last_sequence", "Sequence of the last envelope of the log."),
		consumers:     desc("skein_log_consumers", "Readers that the stream of the log has."),
		reconnects:    desc("skein_log_reconnects_total", "Times that the connection to the log was lost and made again."),
		interruptions: desc("skein_log_read_interruptions_total", "Times that reading the log was interrupted and begun again."),
		missing:       desc("skein_log_missing_envelopes", "Envelopes that the log has lost, across which nothing is folded."),
	}
}

// Describe is part of prometheus.Collector.
func (c *logCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.up, c.bytes, c.maxBytes, c.fullIn, c.last, c.consumers, c.reconnects, c.interruptions,
		c.missing,
	} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *logCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}

	counters := c.Views.Log.ErrorCounters()
	out <- prometheus.MustNewConstMetric(c.reconnects, prometheus.CounterValue, float64(counters.Reconnects))
	out <- prometheus.MustNewConstMetric(c.interruptions, prometheus.CounterValue, float64(counters.Interruptions))

	ctx, cancel := context.WithTimeout(c.Life, logTimeout)
	defer cancel()
	holes, _ := c.Views.Log.Holes(ctx) // if the log does not answer, these are the holes that are known
	gauge(c.missing, envelopesIn(holes))
	health, err := c.Views.Log.Health(ctx)
	if err != nil {
		// The other figures are not known, and old ones would look like current ones.
		gauge(c.up, 0)
		return
	}
	gauge(c.up, 1)
	gauge(c.bytes, float64(health.Bytes))
	gauge(c.last, float64(health.Last))
	gauge(c.consumers, float64(health.Consumers))
	if health.MaxBytes > 0 {
		gauge(c.maxBytes, float64(health.MaxBytes))
	}
	days := c.Growth.DaysUntilFull(time.Now(), health.Bytes, health.MaxBytes)
	if days != nil {
		gauge(c.fullIn, *days*(24*time.Hour).Seconds())
	}
}

// envelopesIn returns how many sequences the ranges contain.
func envelopesIn(ranges []eventlog.SeqRange) (n float64) {
	for _, r := range ranges {
		n += float64(r.To - r.From + 1)
	}
	return n
}
