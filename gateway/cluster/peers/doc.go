// Package peers calls the other nodes of a cluster. Each node holds the rows of some partitions,
// and every node accepts every call.
//
//	call ─► about one home, which another node holds ─► Forward: a node that serves it answers the whole call
//	     ├► about many homes ─► each node answers its part of the call
//	     └► about a home that this node holds, with pins, boards or items of other homes ─► the query runs, and a RemoteBatch collects
//	        the lookups that this node cannot answer; each other node is asked once for all lookups that it can answer; then the query
//	        runs again with these answers, until it lacks nothing
//
// Both ends prove that they are nodes of the cluster (proof.go). If an answer is not proven, cannot
// be decoded, is incomplete or too large (answer.go), or is older than the position that the call
// demands, then the node has failed, and its answer is never passed on to a client.
//
// Each call demands an answer from a state at or after the state with which the final answer
// begins. If a node does not answer, or no longer serves a partition, the next node that serves it
// is asked. If a node is slow, the next one is asked in addition (scatter.go). All calls are reads,
// so a second call has no effect.
package peers
