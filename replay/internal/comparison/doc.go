// Package comparison compares what the source of an import contains with the answers of a running
// service. Migrations are checked with it, so it shares no code with events, projections and
// queries, which might have the same bug on both sides.
//
//	facts of a file or of Redis ──► expected entries ──► sorted on disk ─┐
//	                                       │ lists                       ├─ walk ──► differences
//	                                       └──► queries ──► answers ─────┘
//
// A [Comparer] takes entries of lists in any order and sorts them. It queries the service for every
// list that has an entry, sorts the answers, and walks through both sides at once. Sorting uses
// temporary files, so memory is bounded whatever the size of the source.
//
// For every list, it checks each entry with its time, and the title of a board or the content of a
// pin; the order of the pages; and the total size. For lists of the graph, it also checks the
// counts of their users and boards. It can also check random pairs of a user and whom the user may
// follow. A list that no entry names is not queried.
package comparison
