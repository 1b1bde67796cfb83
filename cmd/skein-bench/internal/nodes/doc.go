// Package nodes has the rows about what a node of a cluster costs. They need no cluster: nodes do
// not talk to each other when they write, so a process that folds some partitions of a log does
// what the node does that holds them. To fold is to apply events to stores. A partition is one of
// 256 parts of the rows.
//
//	nodes.go        the group, and the nodes of clusters of several sizes
//	large.go        one of very many nodes, which reads the log of a large product
//	node.go         a node: a decoder, and the stores with the partitions of the node
//	product.go      an invented log of a product
package nodes
