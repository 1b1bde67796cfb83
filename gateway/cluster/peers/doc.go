// Package peers calls the other nodes of a cluster. Each node holds the rows of some partitions,
// and every node accepts every call.
//
//	call ─► about one home, which another node holds
//	     │    └► Forward: a node that holds the home answers the whole call
//	     ├► about many homes
//	     │    └► Scatter: each node answers its part of the call
//	     └► about a home that this node holds, with pins, boards or items of other homes
//	          └► this node runs the query, and a RemoteBatch collects the lookups that need other nodes;
//	             this node then asks each of them once for all lookups that it can answer, and runs
//	             the query again with the answers, until no lookup lacks an answer
//
// Both ends prove that they are nodes of the cluster (proof.go). If an answer is not proven, cannot
// be decoded, is incomplete or too large (answer.go), or is older than the position that the call
// demands, then the node has failed, and its answer is never passed on to a client.
//
// Each call demands an answer from the position at which this node runs the query, or from a later
// one. If a node does not answer, or no longer serves a partition, this node asks the next one that
// serves the partition. If a node is slow, this node asks the next one in addition (scatter.go).
// All calls are reads, so to make one twice has no effect.
package peers
