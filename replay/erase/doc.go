// Package erase takes a user out of the log for good (I12): out of the stores, the archive and the stream, so that no file
// contains the id.
//
//	user_deleted ──► folded by every store ──► rows of the user are gone
//	      │
//	everything archived ──► scrubbed: the id becomes a pseudonym
//	      │
//	intake pauses ─► the rest archived, up to H ─► epoch + 1 ─► intake goes on at H + 1 ─► the stream up to H is destroyed
//	      │
//	tables with deleted rows, previous generations, snapshots: written anew, or removed
//
// # What holds
//
// A fold of the scrubbed log gives the rows of a fold of the log before, from the deletion of the user on, row for row (I4).
// That is why the events of the user are not left out of it: others have tallies, floors and marks by them. They keep their
// places, and carry a pseudonym, [events.KeyedHash.Pseudonym], of which the folds know that its tombstone is that of the
// user. See docs/decisions/0011-erase.md.
package erase
