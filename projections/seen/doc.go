// Package seen is the projection of what users have seen: plays by month, and the last items that were served.
//
// # The loop
//
//	played ──► print: 40 bits of a hash of item and user
//	              │ merged into the row of user and month, which is not read
//	              ▼
//	open month:   fingerprints of all plays, sorted, Rice-coded        (0x60)
//	              │ the month is over: a visit of the maintenance
//	              ▼
//	closed month: one Bloom filter of the right size                    (0x61)
//	              beside it the fingerprints of plays that came later  (0x60)
//	              │ no window reaches the month any more: a visit of the maintenance
//	              ▼
//	nothing:      ranges of a partition, whole files at once
//
//	served ──► merged into the row of the user: the newest 100 items (0x62)
//
// A play is one blind write of a few bytes. Whatever merges rows, a batch, a flush, a compaction or a read, takes the union
// of sets or the newest of serves, which are semilattices: order, grouping and repetition do not matter, so a play that is
// folded twice is folded once, and two builds agree bit for bit (I4).
//
// # What holds
//
// Seen is never forgotten early (I10). A month is sealed whole and in one commit with the removal of what it is made of;
// filters have no false negatives; a month is dropped only when it is older than the longest window. A filter does not
// grow and is never followed by a second one: plays of a closed month that are backfilled after it was sealed stand beside
// it as fingerprints, of which 100 000 add one false positive in ten million. Backfills of users and months that have no filter
// yet are sealed like others at the next visit.
//
// At most [Settings.FalsePositives] of unseen candidates are taken for seen over the default window: each closed month is
// built for that share divided by the months of the window.
//
// Time is that of the events, and months are those of UTC. Live plays are of the month in which the log took them,
// backfilled ones of that in which they happened. A play that no window could reach when it came is not kept.
//
// The deletion of a user, and the emptying of what a user has seen, remove all rows of the user and leave a keyed hash
// against backfills, which are all before it.
package seen
