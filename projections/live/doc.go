// Package live keeps a projection serving while its stores are replaced. A [Live] answers queries
// from one generation, which is one [store.Store]. It builds a next generation meanwhile, and then
// makes that one serve at one moment, the cut-over. Positions never go back for a reader, and no
// query fails because of a cut-over.
//
//	             Run: the fold of the live generation
//	log ──► live generation N ◄── views, callers that wait
//	 │                │ CutOver: N+1 shows at least what N shows
//	 └───► BuildNext: N+1 ──► live; N is kept as the previous one, for a rollback; older ones are removed
//
// The file of generations names the generation that serves and the previous one. All others are
// removed. At most one generation is open as the next one ([ErrBuilding]): one that was built, or
// the previous one.
//
//	call            in state           serves               the next        previous
//	BuildNext       no next open       as before            what was built  as before
//	OpenPrevious    no next open       as before            the previous    open, to be folded up to the present
//	CloseNext       next open          as before            none: deleted   as before, closed
//	CutOver         next open          the next             none            what served; none if that is damaged
//	DeletePrevious  no next open       as before            none            deleted
//	Recover         stopped by a disk  a copy of its files  none            what stopped
//
// If a generation fails or cannot be opened, the Live does not fail: its state says so, and the
// generation can be rebuilt.
//
// A node of a cluster opens its projections with [store.Options.Partitioned]. The set of partitions
// then belongs to a generation and never changes. To hold other partitions, the node makes another
// generation, and a rollback returns to the set of the previous one. The first generation of a new
// node holds none.
//
// # Partitions
//
// [Live.ExportPartitions] passes the rows of some partitions, at one position, to another process,
// which makes a store of them with [Live.ImportPartitions]. Package rebuild combines such stores
// into a next generation.
//
// Live uses only what [store.Store] exports, so a generation is opened, folded, read and closed
// like any other store.
package live
