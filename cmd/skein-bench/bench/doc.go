// Package bench measures skein against what it is held against, side by side in one run, and makes
// a table of ratios. The program of it is skein-bench. This package has the list of the groups of
// rows, and the course of a run.
//
// # What is started
//
//	bench ──┬── skein serve            the measured service, a process of its own; built for that as it is released
//	        ├── redis-server           fresh, without a configuration file
//	        ├── a Connect service in front of that Redis (hidden command of skein-bench, a process of its own)
//	        └── wrk, redis-benchmark   one at a time
//
// # How it is measured
//
// Skein and Redis get the same follow graph, and before anything is timed a sample of questions is
// put to every contender and to the graph itself: all must give the same answers. Each row is
// measured several times, its contenders in turn, each time in the opposite order; medians are
// compared.
//
// A comparison ([Compare]) has two builds of skein as contenders instead, each with a service of
// its own, and needs no other program.
//
// # Where things are
//
//	bench          options to a report: the groups of rows, in their order
//	serving        groups of a service that runs: reads, ingest, latency
//	stores         groups of one store in process: constant, inprocess, disk, feed, seen, counters,
//	               notifications
//	replays        groups of stores that are built from the log: replay, plays, growth
//	nodes          the group of nodes of a cluster, each by itself: nodes
//	workload       the follow graph, its events, stores that are folded from them
//	programs       what is started, and what drives it
//	measure        a run, its report, and what measures
//
// Imports go down this list, but that the logs of replays have events of stores. A new row is a
// function that adds to the report; a new group is one more in the list groups.
package bench
