// Package peers asks the other nodes of a cluster. Each node holds the rows of some partitions, and every node takes every call.
//
//	call ─► about one home, which is elsewhere ─► Forward: a node that serves it answers the whole call
//	     ├► about many homes ─► each node answers its part of the call
//	     └► about a home that is here, with pins, boards or items of others ─► the query runs; what it lacks is noted (RemoteBatch);
//	        each node is asked once for all that it has; the query runs again, with more known, until it lacks nothing
//
// Both ends prove that they are nodes of the cluster (proof.go). An answer that is not proven, cannot be decoded, is incomplete, too large
// (answer.go), or from before the position that was asked for is a failure of the node, and is never passed on to a client.
//
// Nodes are asked for a state at or after the one that the answer begins with. One that does not answer, or no longer serves a partition,
// is passed over for the next that does. While one is slow, the next is asked as well (scatter.go). Calls are reads, so asking twice
// changes nothing.
package peers
