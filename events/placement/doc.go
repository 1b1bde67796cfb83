// Package placement says which nodes are in a cluster of skein, and which partitions each of them should hold. Nodes do not talk to each
// other about it: they share a key-value bucket of NATS JetStream.
//
//	            the bucket skein-cluster-LOG
//	┌──────────────────────────────────────────────────┐
//	│ node.NAME   what a node says of itself           │◀── renewed every 2 s by the node (tend.go)
//	│ drain.NAME  the node is to get no partitions     │◀── an operator: Drain
//	│ controller  the lease of the controller          │◀── renewed by the node that has it (control.go)
//	│ table       which nodes should hold a partition  │◀── written by the controller: Place(nodes)
//	└────────────────────────┬─────────────────────────┘
//	                         │ one watch of all keys in every process (watch.go)
//	                         ▼
//	              state: Members, Table ──▶ Changed
//
// A [Member] says which partitions it serves now; the [Table] says which nodes should hold them. The two differ while partitions move.
// A process without a Self only watches, as a router or a command does.
//
// # Time
//
// Clocks of machines are never compared. A process measures how long a key is silent by its own clock, from when it saw the last renewal,
// or from when it opened the bucket. This clock goes only while the process sees writes of the bucket, whoever makes them (state.go).
// So while the bucket cannot be read, or takes no writes, nothing expires: members and table stay as they were last known. This also
// means that the last node of a cluster does not expire when it stops.
//
// A member that is silent for Expire is not among the members. It keeps its partitions in the table, because most nodes that stop are
// restarted. After ReplaceAfter the controller deletes its key, and the table without it follows. The table is a function of the keys of
// nodes: [Place] of all of them, unless they are to be drained. It is made when these keys have been the same for two periods, so that
// nodes that start one after the other do not cause a table each.
//
// # Two writers
//
// Every write but that of an operator is a compare-and-set on the revision of its key. A write that was overtaken fails, and the watch
// brings what stands there. So two controllers at the same time do no harm, as when one was paused and another has taken the lease.
// Reads of single keys are not used: a replica that lags may answer them.
//
// A value that cannot be read is ignored and logged. What was known of its key stays; a node overwrites its own key, and the controller
// the table. So whoever can write one key can keep neither a node from starting nor the cluster from having a controller.
//
// Each run of a node has a random instance id in its key. When two processes have the same name, the newer one takes the key, so that a
// restarted node is back at once. The older one finds the id of another in its key, and its Run returns [ErrNameTaken].
package placement
