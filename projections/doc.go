// Package projections is the contract between a projection and the store that keeps its rows: what a fold gets, what a query gets, and what
// keys look like. It neither reads the log nor opens files.
//
//	             Apply(event, batch)                Get, Iter
//	store ─────────► fold ─────► Batch ──► rows ──► View ─────► query ──► answer
//
// A [Projection] is a pure fold of the log: its Apply sees an event and a [Batch], and nothing else (I1, I4). The batch reads rows, those
// that the fold has just written included. A query reads a [View]: the rows of a store at one whole position. Each projection has its own
// folder (graph, inbox, seen, counters), with the fold, the keys and the queries. Interfaces beside Projection, such as [Clocked] and
// [Merging], are for projections that need more.
//
// Batch and View are concrete types, because a call through an interface would allocate every key. The store holds a batch as a
// [BatchControl] and opens views by a [WholePosition]; folds and queries cannot reach what only these can do.
//
// # Keys and partitions
//
// Every key begins with a shard and a tag (keys.go). A row belongs to one of 256 partitions, or to the store as a whole (partitions.go). The
// rows of a partition are a fold of the events that [Projection.Route] delivers to it (I13), and a store may hold any set of partitions.
//
// A [Fingerprint] names all that the rows depend on besides the log (I4). A [Description] is a row as people read it.
//
// # Packages
//
//	store           one generation of one projection on Pebble: fold loop, commit, recovery, views
//	live            the generations of one projection: one serves, another takes its place
//	build           builds a store from the log, partition by partition, in memory
//	all             the list of all projections
//	projectiontest  the model, generated histories and the conformance suite, for tests
package projections
