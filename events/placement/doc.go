// Package placement keeps track of which nodes are in a cluster of skein, and decides which
// partitions each of them should hold. Nodes do not talk to each other about this: they share a
// key-value bucket of NATS JetStream.
//
//	            the bucket skein-cluster-LOG
//	┌──────────────────────────────────────────────────┐
//	│ node.NAME   the node key: the node, as a Member  │◀── renewed every 2 s by the node (renew.go)
//	│ drain.NAME  no partitions for this node          │◀── an operator: SetDraining
//	│ controller  the lease: which node is controller  │◀── renewed by the node that has it (control.go)
//	│ table       which nodes should hold a partition  │◀── written by the controller: Place(nodes)
//	└────────────────────────┬─────────────────────────┘
//	                         │ one watch of all keys in every process (watch.go)
//	                         ▼
//	        bucketState: Members, Table ──▶ Changed
//
// A [Member] says which partitions it serves now; the [Table] says which nodes should hold them.
// The two differ while partitions move. A process whose Options have no Self only watches the
// bucket. Routers and commands do so.
//
// # Time
//
// Processes never compare the clocks of two machines. Each process measures by its own clock how
// long a node has been silent: since it read the last renewal of the node key, or opened the
// bucket. This clock advances only while writes to the bucket arrive, from any process (state.go).
// So nothing expires while the bucket cannot be read or written: Members and Table stay as the
// process last read them. For the same reason, the last node of a cluster does not expire when it
// stops.
//
// A node that has been silent for ExpireAfter is no longer alive, and Members does not return it.
// It keeps its partitions in the table, because most nodes that stop are restarted. After
// ReplaceAfter, the controller deletes the node key and then writes a table without this node. The
// controller computes the table with [Place] from all node keys and drain keys. It first waits
// until no node was added, removed or drained, and no zone or weight changed, for two periods, so
// that nodes that start one after the other do not cause a table each.
//
// # Two writers
//
// Every write, except an operator's, is a compare-and-set on the revision of its key. If another
// process has written the key first, the write fails, and the watch delivers the other value. So it
// does no harm that two nodes act as controller for a while, as happens when the first was paused
// and the second has taken the lease. The package does not read single keys, because a NATS server
// that lags may answer.
//
// A value that cannot be read is logged and ignored: the value that was read before under that key
// stays in effect. A node overwrites such a value in its own node key, and the controller in the
// table. So an attacker who can write one key cannot keep a node from starting, or the cluster from
// having a controller.
//
// Each process writes a random instance id into its node key. When two processes run nodes of the
// same name, the newer process overwrites the key, so that a restarted node is back at once. The
// older process reads the id of another instance, and its Run returns [ErrNameTakenOver].
package placement
