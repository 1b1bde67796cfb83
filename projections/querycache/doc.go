// Package querycache keeps in memory, beside the rows of open stores, what queries have found in them. An answer from it is the answer
// of the rows of the same view.
//
//	                      Cache: one bound of bytes, and counts
//	          ┌──────────────────────┼──────────────────────┐
//	Set of graph: edges     Set of inbox: edges     Set of inbox: outboxes          … and those of a rebuild
//
//	fold ──Changed──► bucket ◄──Find── query         bucket: changed, and six entries with a byte of their hash each
//	                     ▲                │
//	                     └──Make──────────┘          after a question that no entry answered
//
// # What is answered (I1)
//
// A hash names the owner of rows, and by it a bucket. Entries of one owner, however many, are in the bucket of that owner.
//
//   - A bucket says in changed the version of the last views that may have another row of one of its owners than the views
//     before. An entry was made from a view of version e, and a question is asked at a view of version v. The entry
//     answers if changed ≤ min(e, v): nothing of its owners changed between the two.
//   - The fold raises changed while no view of the version that it names exists: before it is published. Publishing is an
//     atomic store, and taking a view an atomic load of what was stored. So a query with a view of version v finds changed
//     at v or above, if v brought a change.
//   - The query has a view of version v, then loads the entry, then changed. The maker of the entry had a view of version e
//     before the entry was stored. So changed is loaded after all changes up to max(e, v) were named: if it is not above
//     min(e, v), no change lies between.
//
// What comes later than the load of changed is of a version above v, and no concern of a view of version v. Versions
// rise with every view of other rows, so a repair, which changes no position, is named like a change.
//
// Entries are compared by what they are of, never by hash alone. Tags, ghosts and used may hold anything: they decide what is
// kept, and never what is answered.
//
// # What is kept
//
// The bound is one for all sets of a process. The clock makes room: an entry goes that was not used since the hand last passed. Asked
// counts questions without an entry, so that a caller keeps nothing for a single one: a walk over all owners takes no room. An
// entry belongs to one open store, and nothing of it is left once the store is closed.
package querycache
