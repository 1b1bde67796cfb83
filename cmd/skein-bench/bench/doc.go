// Package bench measures skein against what it is held against, side by side in one run, and makes a table of ratios. The
// program of it is skein-bench.
//
// # What is started
//
//	bench ──┬── skein serve            the measured service, a process of its own; built for that as it is released
//	        ├── redis-server           fresh, without a configuration file
//	        ├── a Connect service in front of that Redis (service.go; hidden command of skein-bench, a process of its own)
//	        └── wrk, redis-benchmark   one at a time
//
// Everything runs on this machine, over TCP on the loopback, on free ports, below one temporary directory, and is
// stopped at the end. Nothing waits by sleeping: each program is polled until it answers.
//
// # How it is measured
//
// Skein and Redis get the same follow graph (graph.go), and before anything is timed a sample of questions is put to
// every contender and to the graph itself: all must give the same answers (agree.go). Each row is measured several
// times, its contenders in turn, each time in the opposite order; medians are compared.
//
// # Where things are
//
//	bench.go       options, the course of a run, the list of rows
//	reads.go       point check, filter, newest page over HTTP against Redis and a service in front of it
//	ingest.go      durable follows until they are visible, against Redis with an append-only file
//	constant.go    the cost of a user with many followers against one with few
//	inprocess.go   checks in process against roaring bitmaps; bytes on disk
//	feed.go        the home feed: fan-out, loading, a large author between others; feedpages.go: pages of it;
//	               feedworld.go: who posts and who follows; feedredis.go: the same in Redis
//	seen.go        what users have seen: who plays; seenfold.go: plays that are folded; seenbytes.go: their bytes at rest;
//	               seenfilter.go: candidates; seenrate.go: false positives; seenexpiry.go: the end of a month;
//	               seenredis.go: the same in Redis
//	counters.go    lists by heat, counts; countersconstant.go: plays and pins where there are many
//	replay.go      rebuilds from archive and stream, verification, a round of the auditor; replaylog.go: the logs and their
//	               archives; replayjob.go: one measurement, in a process of its own; replayredis.go: Redis loading an
//	               append-only file; replaycutover.go: cut-overs under load
//	latency.go     calls of all methods that read at half of their saturation rates, also while events are written and while
//	               projections are rebuilt; loadworld.go: what the service holds; loadmethods.go: what it is asked;
//	               loadbeside.go: what goes on meanwhile
//	growth.go      what the number of follows changes: bytes, start, memory; growthlog.go: an archive of any size;
//	               growthops.go: operations; ../plot: a program that draws it
//	wrk.go, redisbench.go, resp.go      the drivers of others
//	openloop.go, wire.go                that of our own: calls at given moments, over kept connections
//	process.go, skein.go, redis.go, service.go    the programs
//	report.go, stats.go, machine.go     the table
//
// A new row is a function that adds to the report, and a line in [rows].
package bench
