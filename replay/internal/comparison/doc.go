// Package comparison compares what the source of an import says with the answers of a running service. It is how a migration is checked,
// so it shares no code with events, projections and queries.
//
//	facts of a file or of Redis ──► expected entries ──► sorted on disk ─┐
//	                                       │ lists                       ├─ walk ──► differences
//	                                       └──► queries ──► answers ─────┘
//
// A [Comparer] takes entries of lists in any order, sorts them, queries the service for every list of an entry, sorts the answers, and
// walks through both sides. So memory is bounded, whatever the size of the source.
//
// Checked are, for every list: each entry with its time, and the title of a board or the content of a pin; the order of the pages; the total
// size; and, for lists of the graph, the counts of their users and boards. Random pairs may be checked beside them. A list that no entry
// names is not queried.
package comparison
