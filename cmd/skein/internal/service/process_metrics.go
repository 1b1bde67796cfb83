package service

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/projections/store"
)

// processCollector collects the metrics of what the whole process shares: the block cache, and the
// files of tokens, keys and certificates.
type processCollector struct {
	blockCache *store.Cache
	// maxCacheBytes is the memory that the block cache may take.
	maxCacheBytes int64
	access        Access

	lookupsDesc, bytesDesc, maxBytesDesc, staleDesc, expiryDesc *prometheus.Desc
}

func newProcessCollector(blockCache *store.Cache, maxCacheBytes int64, access Access) *processCollector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &processCollector{
		blockCache:    blockCache,
		maxCacheBytes: maxCacheBytes,
		access:        access,
		lookupsDesc: describe("skein_block_cache_lookups_total",
			"Lookups of table blocks in the block cache, by whether the block was there.", "answer"),
		bytesDesc:    describe("skein_block_cache_bytes", "Memory that the block cache takes."),
		maxBytesDesc: describe("skein_block_cache_max_bytes", "Memory that the block cache and the memtables may take together."),
		staleDesc:    describe("skein_access_file_stale", "1 while the file has changed and the new version could not be read.", "file"),
		expiryDesc:   describe("skein_certificate_expiry_timestamp_seconds", "Time at which a certificate of the service expires.", "file"),
	}
}

// Describe is part of prometheus.Collector.
func (c *processCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lookupsDesc, c.bytesDesc, c.maxBytesDesc, c.staleDesc, c.expiryDesc} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *processCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m := c.blockCache.Metrics()
	out <- prometheus.MustNewConstMetric(c.lookupsDesc, prometheus.CounterValue, float64(m.Hits), "hit")
	out <- prometheus.MustNewConstMetric(c.lookupsDesc, prometheus.CounterValue, float64(m.Misses), "miss")
	gauge(c.bytesDesc, float64(m.Size))
	gauge(c.maxBytesDesc, float64(c.maxCacheBytes))

	now := time.Now()
	collectStale := func(isStale map[string]bool) {
		for file, stale := range isStale {
			gauge(c.staleDesc, boolGauge(stale), file)
		}
	}
	if c.access.Gate != nil {
		collectStale(c.access.Gate.Stale(now))
	}
	for _, certificates := range []*access.Certificates{c.access.Certificates, c.access.NodeCertificates} {
		if certificates == nil {
			continue
		}
		collectStale(certificates.Stale(now))
		if expiry := certificates.Expiry(now); !expiry.IsZero() {
			gauge(c.expiryDesc, float64(expiry.Unix()), certificates.Name())
		}
	}
}

// registerProcessMetrics registers c and the usual metrics of a Go program.
func registerProcessMetrics(reg prometheus.Registerer, c *processCollector) error {
	return errors.Join(
		reg.Register(c),
		reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
}
