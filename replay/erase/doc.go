// Package erase removes users from the log for good (I12): from the stores, the archive and the
// stream, so that no file contains their ids any more.
//
//	user_deleted ──► folded by every store ──► rows of the user are gone
//	      │
//	everything archived ──► scrubbed: the id becomes a pseudonym
//	      │
//	publishing pauses ─► the rest archived, up to H ─► epoch + 1 ─► publishing continues at H + 1 ─► the stream up to H is destroyed
//	      │
//	a new generation of each store: partitions with events about the users built from the log, rows of the others copied
//	      │
//	previous generations, snapshots: removed
//
// # Invariant
//
// From the user's deletion onwards, a fold of the scrubbed log makes the same rows as a fold of the
// original log (I4). So the events of the user cannot be left out: rows of other users depend on
// them, such as counts, floors and cursors. The events keep their positions, but have a pseudonym
// instead of the id, [events.KeyedHash.Pseudonym]. The folds know that the tombstone of the
// pseudonym is the tombstone of the user. See docs/decisions/0011-erase.md.
package erase
