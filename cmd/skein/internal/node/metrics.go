package node

import "github.com/prometheus/client_golang/prometheus"

// clusterCollector collects the metrics of a node of a cluster. docs/metrics.md lists them.
type clusterCollector struct {
	node *Node

	nodes, partitions, underReplicated, unserved, unreadableKeys *prometheus.Desc

	state, changeState *prometheus.Desc
}

// NewCollector returns a collector of the metrics of a node of a cluster.
func NewCollector(n *Node) prometheus.Collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &clusterCollector{
		node:  n,
		nodes: describe("skein_cluster_nodes", "Nodes of the cluster that are alive, as seen by this node."),
		partitions: describe("skein_cluster_partitions",
			"Partitions that this node holds, and those that the table of the cluster gives it.", "state"),
		underReplicated: describe("skein_cluster_partitions_short", "Partitions that fewer nodes serve than --copies says."),
		unserved:        describe("skein_cluster_partitions_unserved", "Partitions that no node serves."),
		unreadableKeys: describe("skein_cluster_keys_unreadable",
			"Keys in the bucket of the cluster that are ignored because their values cannot be read."),
		state: describe("skein_cluster_node_state", "1 for the current state of this node, 0 for the others.", "state"),
		changeState: describe("skein_cluster_change_state",
			"1 for the state of the store's last change of partitions; absent if there was none since the start.", "projection", "state"),
	}
}

// Describe is part of prometheus.Collector.
func (c *clusterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.nodes, c.partitions, c.underReplicated, c.unserved, c.unreadableKeys, c.state, c.changeState,
	} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *clusterCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}

	status := c.node.Status()
	alive := 0
	given := 0
	for _, s := range status.GetNodes() {
		if !s.GetAway() {
			alive++
		}
		if s.GetSelf() {
			given = int(s.GetGiven())
		}
	}
	held := c.node.server.Serves()
	gauge(c.nodes, alive)
	gauge(c.partitions, held.Len(), "held")
	gauge(c.partitions, given, "given")
	gauge(c.underReplicated, int(status.GetShortPartitions()))
	gauge(c.unserved, int(status.GetUnservedPartitions()))
	gauge(c.unreadableKeys, len(c.node.cluster.UnreadableKeys()))

	current := c.node.State()
	for _, s := range []State{Joining, Serving, Leaving} {
		v := 0
		if s == current {
			v = 1
		}
		gauge(c.state, v, s.String())
	}
	for i, store := range c.node.Stores {
		if s := c.node.changer.state(i); s != Unchanged {
			gauge(c.changeState, 1, store.Name(), s.String())
		}
	}
}
