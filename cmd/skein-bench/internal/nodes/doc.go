// Package nodes has the rows of nodes of a cluster, without a cluster: nodes do not talk to each other on the write path, so a process
// that folds some partitions of a log is the node that holds them.
//
//	nodes.go        the group, and what nodes cost in clusters of several clusterSizes
//	large.go        one of very many nodes, on the log of a large product
//	node.go         a node: the decoder and the four stores, with the partitions that placement gives it
//	product.go      the log of a product, made up
package nodes
