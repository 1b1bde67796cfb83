// Package redis imports the facts in a Redis server into the log: follows, boards, pins, blocks, mutes, likes, plays and serves. It reads
// lists, hashes, sets and sorted sets, with a mapping of patterns of keys to meanings.
//
//	Redis ── SCAN, pages of keys ──► facts ──► sorted files ─┐
//	                                   │                     ├─ merge ──► new facts, numbered ──► publish ──► known facts
//	                                   └ bad ones            │                                                  │
//	                                                         └────────────────── known facts ◄──────────────────┘
//
// Two scans of Redis have different orders, so the order of a scan cannot number the facts. An import has runs, each of three phases:
//
//   - It reads Redis, and sorts the facts. After an interruption it continues at a cursor of the scan, whose earlier facts are all on
//     disk. A fact that is read twice gives the same record twice, and the sort drops one.
//   - It selects the new facts, which no earlier run has published. They get offsets in their order, after those of earlier runs.
//   - It publishes them by [importer.RunRecords], one call in flight. When the last call is acknowledged, the facts are known.
//
// What must stay true:
//
//   - A fact consists of ids, text, and the time in Redis or the absence of one. The time of reading is no part of it. So a run over an
//     unchanged Redis has nothing to publish, and a play, which counts each time it is published, counts once.
//   - A fact is known only when the log has acknowledged it (I6): the state never runs ahead of the log. It may lag behind:
//     then the same facts are sent again with the same source and offsets, and ignored.
//   - A fact without a time gets the recorded start of the run that has found it. If the same fact with a time is known too, it is
//     not published: it would count as the later fact.
//   - A time far in the future has the wrong unit, and is rejected. A wrong unit would be the worst mistake here: it would be in every
//     record, and published history cannot be withdrawn.
//   - Memory is bounded, whatever the size of a key, of the database and of the import.
//
// What is common to all imports is not here: publishing, its state and its progress are in replay/importer, sorted files in
// replay/internal/recordfile, and the comparison with a service in replay/internal/comparison.
package redis
