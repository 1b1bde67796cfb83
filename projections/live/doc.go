// Package live keeps a projection serving while its stores are replaced. A [Live] serves from one generation, which is one
// [store.Store]. A next one is built beside it, and takes its place at one moment. Positions never go back for a reader, and no
// read fails for a cut-over.
//
//	             Run: the fold of the live generation
//	log ──► live generation N ◄── views, waiting
//	 │                │ CutOver: N+1 shows at least what N shows
//	 └───► BuildNext: N+1 ──► live; N is kept as the previous one, for a rollback; older ones are removed
//
// The file of generations names the one that serves and the previous one; what it does not name is removed. One generation at most
// is open as the next ([ErrBuilding]): one that was built, or the previous one.
//
//	call            in state           serves               the next        previous
//	BuildNext       no next open       as before            what was built  as before
//	OpenPrevious    no next open       as before            the previous    open, to be folded up to the present
//	CloseNext       next open          as before            none: deleted   as before, closed
//	CutOver         next open          the next             none            what served; none if that is damaged
//	DeletePrevious  no next open       as before            none            deleted
//	Recover         stopped by a disk  a copy of its files  none            what stopped
//
// A generation that cannot be opened, or fails, does not fail the Live: its state says so, and it can be rebuilt.
//
// A node of a cluster opens its projections as [store.Options.Partitioned]. Then the set of partitions belongs to the generation and never
// changes: other partitions are another generation, and a rollback goes back to the set of the previous one. The first generation of a
// new node holds none.
//
// # Partitions
//
// [Live.ExportPartitions] gives the rows of some partitions, as they are at one position, to another process, which makes a store of
// them by [Live.ImportPartitions]. Package rebuild puts such stores together to a next generation.
//
// Live uses only what [store.Store] exports, so a generation is opened, folded, read and closed as any other store is.
package live
