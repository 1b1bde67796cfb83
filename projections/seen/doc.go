// Package seen is the projection of what users have seen: their plays by month, and the items that
// were served to them last.
//
// # From an event to nothing
//
//	played ──► fingerprint: 40 bits of a hash of item and user
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
// A play is written without reading: one merge of a few bytes. A batch, a flush, a compaction and a
// read all merge rows in the same way: they take the union of sets of fingerprints, and the newest
// of serves. Both are semilattices, for which order, grouping and repetition do not matter. So a
// play that is folded twice counts once, and two builds have equal rows, bit for bit (I4).
//
// # Guarantees
//
// What a user has seen is never forgotten early (I10). The fingerprints of a user and month are
// sealed all at once, in one commit with their deletion. Filters have no false negatives. A month
// is deleted only when it is older than the longest window.
//
// A filter does not grow, and there is never a second one for the same user and month. Plays of a
// closed month that are backfilled after it was sealed stay beside the filter as fingerprints; 100
// 000 of them add one false positive in ten million. If a user has no filter of a month yet,
// backfilled plays are sealed like others at the next visit.
//
// Over the default window, at most [Settings.FalsePositives] of the unseen candidates are taken for
// seen: the filter of a closed month is built for that share divided by the number of months in the
// window.
//
// Time is that of the events, and months are those of UTC. A live play belongs to the month in
// which the log accepted it, a backfilled one to the month in which it happened. A play that no
// window can reach when it arrives is not kept.
//
// When a user is deleted, or clears what was seen, the plays and serves of the user are deleted. A
// keyed hash of the user stays, to keep out backfills, which all come before that event in the
// order of facts.
//
// # Hidden items
//
// An item that a user hides (item_hidden) counts as seen until the user shows it (item_shown),
// whatever was played or cleared. The rows are those of package hiddenitems: exact, one for each
// item, with a count. They end with their user only.
package seen
