// Package nodecmd is the command `skein node`, which lists the nodes of a cluster and drains them.
package nodecmd
