// Package placement keeps track of which nodes are in a cluster of skein, and decides which partitions each of them should hold. Nodes do
// not talk to each other about this: they share a key-value bucket of NATS JetStream.
//
//	            the bucket skein-cluster-LOG
//	┌──────────────────────────────────────────────────┐
//	│ node.NAME   the member as the node describes it  │◀── renewed every 2 s by the node (tend.go)
//	│ drain.NAME  no partitions for this node          │◀── an operator: Drain
//	│ controller  the lease of the controller          │◀── renewed by the node that has it (control.go)
//	│ table       which nodes should hold a partition  │◀── written by the controller: Place(nodes)
//	└────────────────────────┬─────────────────────────┘
//	                         │ one watch of all keys in every process (watch.go)
//	                         ▼
//	              state: Members, Table ──▶ Changed
//
// A [Member] says which partitions it serves now; the [Table] says which nodes should hold them. The two differ while partitions move.
// A process whose Options have no Self only watches the bucket. Routers and commands do so.
//
// # Time
//
// Processes never compare the clocks of two machines. Each process measures by its own clock how long a key has been silent, beginning when
// it saw the last renewal or opened the bucket. This clock advances only while writes to the bucket arrive, whoever makes them (state.go).
// So nothing expires while the bucket cannot be read or takes no writes: members and table stay as the process last read them. This also
// means that the last node of a cluster does not expire when it stops.
//
// A member that has been silent for ExpireAfter is no longer returned by Members. It keeps its partitions in the table, because most nodes that
// stop are restarted. After ReplaceAfter, the controller deletes the member's key and then writes a table without this member. The
// controller computes the table with [Place] from the keys of all nodes that are not drained. It waits until these keys have not changed
// for two periods, so that nodes that start one after the other do not cause a table each.
//
// # Two writers
//
// Every write, except an operator's, is a compare-and-set on the revision of its key. If another process has written the key first, the
// write fails, and the watch delivers the other value. So two controllers at the same time do no harm; that happens when one of them was
// paused and another has taken the lease. The package does not read single keys, because a replica that lags may answer.
//
// A value that cannot be read is ignored and logged. What was known of its key stays; a node overwrites its own key, and the controller
// the table. So whoever can write one key can keep neither a node from starting nor the cluster from having a controller.
//
// Each run of a node has a random instance id in its key. When two processes have the same name, the newer one takes the key, so that a
// restarted node is back at once. The older one finds the id of another in its key, and its Run returns [ErrNameTaken].
package placement
