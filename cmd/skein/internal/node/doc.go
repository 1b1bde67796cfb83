// Package node is the life of a node of a cluster: it makes the stores of the process hold the partitions that the table of the cluster gives
// to the node, and tells the other nodes which of them it serves.
package node
