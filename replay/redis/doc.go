// Package redis brings what a Redis server knows into the log: who follows whom, boards, pins, blocks, mutes, likes, plays
// and serves, from lists, hashes and (sorted) sets, by a mapping of patterns of keys to meanings.
//
//	Redis ── SCAN, pages of keys ──► facts ──► sorted files ─┐
//	                                   │                     ├─ merge ──► new facts, numbered ──► publish ──► known facts
//	                                   └ bad ones            │                                                  │
//	                                                         └────────────────── known facts ◄──────────────────┘
//
// The order of a scan is not that of the next one, so it cannot number anything. An import has runs, each of three phases:
//
//   - It reads Redis, and sorts what it says. Interrupted, it continues at a cursor for which all that was found before is on
//     disk; what is read twice is the same record, and sorted out.
//   - It selects what is new: facts that no earlier run has published. They get offsets in their order, after those of
//     earlier runs.
//   - It publishes them by [importer.RunRecords], one call in flight. When the last is acknowledged, they are known.
//
// What must stay true:
//
//   - A fact is what Redis says, not when it was read: ids, time (or that there is none) and text. So a run over a Redis
//     that did not change has nothing to publish, and plays, which count each time, count once.
//   - A fact is known only when the log has acknowledged it (I6): the state never runs ahead of the log. Behind it
//     may be: the same facts are sent again with the same source and offsets, and ignored.
//   - A fact without a time has the recorded start of the run that found it. It never stands against the same fact with a
//     time: published, it would be taken for the later one.
//   - A time that is far in the future has the wrong unit, and is rejected. A wrong unit is the worst mistake here: it is
//     in every record, and history cannot be taken back.
//   - Memory is bounded, whatever the size of a key, of the database and of the import.
//
// A comparison reads Redis anew and asks the service for every list that it makes; both are sorted by list and entry, and
// held against each other.
package redis
