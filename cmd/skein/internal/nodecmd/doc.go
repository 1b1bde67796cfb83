// Package nodecmd is the command `skein node`: the nodes of a cluster, and their partitions.
package nodecmd
