// Package projections is the contract between a projection and the store that keeps its rows: what
// a fold gets, what a query gets, and what keys look like. It neither reads the log nor opens
// files. I1, I2 and so on in comments are the invariants of docs/invariants.md.
//
//	             Apply(event, batch)                Get, Iter
//	store ─────────► fold ─────► Batch ──► rows ──► View ─────► query ──► answer
//
// A [Projection] is a pure fold of the log: its Apply sees an event and a [Batch], and nothing else
// (I1, I4). The batch also reads rows, and shows what the fold has just written. A query reads a
// [View]: the rows of a store at one whole position, that is, after some envelope and never within
// one. Each projection has its own folder (graph, inbox, seen, counters, notifications) with the
// fold, the keys and the queries. A projection that needs more implements further interfaces, such
// as [ClockTicker] and [MergerProvider].
//
// Batch and View are concrete types, because a call through an interface would allocate memory for
// every key. Only the store has the [BatchControl] of a batch and the [Snapshot] of a view, so
// folds and queries cannot call what is meant for the store.
//
// # Keys and partitions
//
// Every key begins with a shard and a tag (keys.go). A row belongs to one user or item, its home,
// or to the store as a whole. Hashes of their ids divide the homes into 256 partitions
// (partitions.go). The rows of a partition are a fold of the events that [Projection.Route]
// delivers to it (I13), and a store may hold any set of partitions.
//
// A generation is one build of a store. A [Fingerprint] has everything that its rows depend on,
// except the log (I4). A [Description] describes a row for people.
//
// # Packages
//
//	store           one generation of one projection on Pebble: fold loop, commit, recovery, views
//	live            the generations of one projection, one of which serves
//	build           builds a store from the log, partition by partition, in memory
//	all             the list of all projections
//	projectiontest  the model, generated histories and the conformance suite, for tests
package projections
