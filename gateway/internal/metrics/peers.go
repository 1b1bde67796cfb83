package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/gateway/cluster/peers"
)

// peerCollectors returns the collectors of calls to other nodes. p is nil outside of a cluster; the
// counters are then 0.
func peerCollectors(p *peers.Peers) []prometheus.Collector {
	calls := &peers.Calls{}
	if p != nil {
		calls = &p.Calls
	}
	counter := func(result string, n *atomic.Uint64) prometheus.Collector {
		return counterOf(prometheus.CounterOpts{
			Name: "skein_peer_calls_total",
			Help: "Calls to other nodes of the cluster by result: answered, not answered and asked again, asked as well because a node was " +
				"slow, or given up.",
			ConstLabels: prometheus.Labels{"result": result},
		}, n)
	}
	return []prometheus.Collector{
		counter("ok", &calls.OK), counter("again", &calls.Retried), counter("hedged", &calls.Hedged), counter("failed", &calls.Failed),
	}
}
