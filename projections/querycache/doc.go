// Package querycache keeps in memory what queries have found in the rows of open stores. An answer
// from the cache is the answer that the rows of the same view would give.
//
//	                      Cache: one limit of bytes, and statistics
//	          ┌──────────────────────┼──────────────────────┐
//	Set of graph: edges     Set of inbox: edges     Set of inbox: outboxes          … and those of a rebuild
//
//	fold ──MarkChanged──► bucket ◄──Find── query         bucket: changed, and six entries with a byte of their hash each
//	                         ▲                │
//	                         └──Make──────────┘          after a question that no entry answered
//
// # When an entry answers (I1)
//
// The owner of an entry is the user or board whose rows the entry was made from. A hash of the
// owner selects a bucket, and all entries of one owner are in the same bucket.
//
//   - A bucket has a version, changed: the version of the latest views that may have another row of one of its owners than
//     the views before. Suppose that an entry was made from a view of version e and a question is asked at a view of version
//     v. The entry answers if changed ≤ min(e, v), because nothing of its owners then changed between the two views.
//   - The fold raises changed before a view of that version is published. Publishing is an atomic store, and taking a view
//     is an atomic load of what was stored. So a query with a view of version v finds changed at v or above, if v brought a
//     change.
//   - The query has a view of version v, then loads the entry, and then loads changed. The maker of the entry had a view of
//     version e before it stored the entry. So changed is loaded after all changes up to max(e, v) were recorded in it. If it
//     is not above min(e, v), no change lies between the two views.
//
// A change that is recorded after changed was loaded has a version above v, and does not concern a
// view of version v. The version rises with every view that has other rows. A repair therefore is
// recorded like a change, although it changes no position of the log.
//
// Entries are compared by their owners themselves, never by hash alone. The fields tags, ghosts and
// recentlyUsed only decide what is kept and where to look, and never what is answered, so they may
// be wrong.
//
// # What is kept
//
// All sets of a process share one limit of bytes. The CLOCK algorithm evicts: a hand goes around
// the buckets and removes entries that were not used since it last passed. [Set.CountUnanswered]
// counts questions about owners that have no entry, so that callers can wait for the second
// question before they make one, and a walk over all owners adds nothing. An entry belongs to one
// open store, and is removed when the store is closed.
package querycache
