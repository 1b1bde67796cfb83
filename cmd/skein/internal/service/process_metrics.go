package service

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/projections/store"
)

// processCollector collects the metrics of the parts that the whole process shares: the cache of blocks, and the files of tokens, keys and
// certificates.
type processCollector struct {
	cache         *store.Cache
	maxCacheBytes int64
	access        Access

	lookupsDesc, bytesDesc, maxBytesDesc, staleDesc, expiryDesc *prometheus.Desc
}

func newProcessCollector(cache *store.Cache, most int64, access Access) *processCollector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &processCollector{
		cache: cache, maxCacheBytes: most, access: access,
		lookupsDesc: describe("skein_block_cache_lookups_total",
			"Blocks of tables that were asked for, by whether they were in memory.", "answer"),
		bytesDesc:    describe("skein_block_cache_bytes", "Memory that blocks of tables take."),
		maxBytesDesc: describe("skein_block_cache_max_bytes", "Memory that they may take, memtables among them."),
		staleDesc:    describe("skein_access_file_stale", "1 while the file has changed and could not be read.", "file"),
		expiryDesc:   describe("skein_certificate_expiry_timestamp_seconds", "When a certificate of the service expires.", "file"),
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
	m := c.cache.Metrics()
	out <- prometheus.MustNewConstMetric(c.lookupsDesc, prometheus.CounterValue, float64(m.Hits), "hit")
	out <- prometheus.MustNewConstMetric(c.lookupsDesc, prometheus.CounterValue, float64(m.Misses), "miss")
	gauge(c.bytesDesc, float64(m.Size))
	gauge(c.maxBytesDesc, float64(c.maxCacheBytes))
	now := time.Now()
	stale := func(files map[string]bool) {
		for file, is := range files {
			v := 0.0
			if is {
				v = 1
			}
			gauge(c.staleDesc, v, file)
		}
	}
	if c.access.Gate != nil {
		stale(c.access.Gate.Stale(now))
	}
	for _, certs := range []*access.Certificates{c.access.Certificates, c.access.NodeCertificates} {
		if certs == nil {
			continue
		}
		stale(certs.Stale(now))
		if at := certs.Expiry(now); !at.IsZero() {
			gauge(c.expiryDesc, float64(at.Unix()), certs.Name())
		}
	}
}

// registerProcess registers c, and the usual metrics of a Go program.
func registerProcessMetrics(reg prometheus.Registerer, c *processCollector) error {
	return errors.Join(reg.Register(c), reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
}
