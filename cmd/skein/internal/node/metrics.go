package node

import "github.com/prometheus/client_golang/prometheus"

// clusterCollector collects the metrics of a node of a cluster. docs/metrics.md lists them.
type clusterCollector struct {
	node                                                     *Node
	nodes, partitions, underReplicated, unserved, unreadable *prometheus.Desc
	state, change                                            *prometheus.Desc
}

// NewCollector returns the metrics of a node of a cluster.
func NewCollector(n *Node) prometheus.Collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &clusterCollector{
		node:  n,
		nodes: describe("skein_cluster_nodes", "Nodes that are alive as this one sees it."),
		partitions: describe("skein_cluster_partitions",
			"Partitions that this node holds, and those that the table of the cluster gives it.", "state"),
		underReplicated: describe("skein_cluster_partitions_short", "Partitions that fewer nodes serve than should."),
		unserved:        describe("skein_cluster_partitions_unserved", "Partitions that no node serves."),
		state:           describe("skein_cluster_node_state", "1 for the state in which this node is, 0 for the others.", "state"),
		change: describe("skein_cluster_change_state",
			"1 for the state of the change of the partitions of a store; absent while they have not changed.", "projection", "state"),
		unreadable: describe("skein_cluster_keys_unreadable",
			"Keys of the bucket of the cluster whose values cannot be read, and are ignored."),
	}
}

// Describe is part of prometheus.Collector.
func (c *clusterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.nodes, c.partitions, c.underReplicated, c.unserved, c.unreadable, c.state, c.change} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *clusterCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	st := c.node.Status()
	alive, given := 0, 0
	for _, s := range st.GetNodes() {
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
	gauge(c.underReplicated, int(st.GetShortPartitions()))
	gauge(c.unserved, int(st.GetUnservedPartitions()))
	present := c.node.State()
	for _, s := range []State{Joining, Serving, Leaving} {
		is := 0
		if s == present {
			is = 1
		}
		gauge(c.state, is, s.String())
	}
	for i, store := range c.node.Stores {
		if s := c.node.changer.state(i); s != Unchanged {
			gauge(c.change, 1, store.Name(), s.String())
		}
	}
	gauge(c.unreadable, len(c.node.cluster.UnreadableKeys()))
}
