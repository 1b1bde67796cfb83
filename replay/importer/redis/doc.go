// Package redis imports the facts in a Redis server into the log: follows, boards, pins, blocks,
// mutes, reactions, plays and served items. It reads lists, hashes, sets and sorted sets. A mapping
// says what the keys that match a pattern mean.
//
//	Redis ── SCAN, pages of keys ──► facts ──► sorted files ─┐
//	                                   │                     ├─ merge ──► new facts, numbered ──► publish ──► known facts
//	                                   └ bad ones            │                                                  │
//	                                                         └────────────────── known facts ◄──────────────────┘
//
// Two scans of Redis return keys in different orders, so the order of a scan cannot number the
// facts. An import has runs, and each run has three phases:
//
//   - It reads Redis and sorts the facts. If it was interrupted, it continues at a cursor of the scan; all facts from before that cursor are on
//     disk. A fact that is read twice makes the same record twice, and the sort removes one.
//   - It selects the new facts, which no earlier run has published. In their order, they get the offsets that follow those of earlier runs.
//   - It publishes them with [importer.RunRecords], one call at a time. When the last call has been acknowledged, the facts are known.
//
// # Invariants
//
//   - A fact consists of ids, text, and the time in Redis or the absence of a time. The time at which it was read is no part of it. So a run over
//     an unchanged Redis publishes nothing, and a play, which counts each time it is published, counts once.
//   - A fact is known only when the log has acknowledged it (I6): the state is never ahead of the log. It may be behind. Then the same facts are
//     sent again with the same source and offsets, and ignored.
//   - A fact without a time gets the recorded start of the run that has found it. It is not published if the same fact with a time is known: it
//     would count as the later one.
//   - A time that is far in the future has the wrong unit, and is rejected. A wrong unit would be the worst mistake here: it would affect every
//     record, and published history cannot be withdrawn.
//   - Memory is bounded, whatever the size of a key, of the database and of the import.
//
// What all imports have in common is not here: publishing, its state and its progress are in
// replay/importer, sorted files are in replay/internal/recordfile, and the comparison with a
// service is in replay/internal/comparison.
package redis
