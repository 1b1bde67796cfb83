// Package serving has the rows that are measured over the network, with a service that runs in a
// process of its own.
//
//	reads.go      three reads over HTTP, against Redis and against a service in front of Redis; agree.go: before anything is timed, all
//	              contenders must give the same answers to a sample of questions
//	ingest.go     follows from the call until reads show them, against Redis with an append-only file; inprocess.go: the same without
//	              HTTP; ingestplays.go: the same for plays
//	latency.go    latencies of all methods that read, at a fifth of the rates that the service can reach, also while events are written
//	              and while projections are rebuilt; loadworld.go: the data of the service; loadmethods.go: the calls;
//	              loadbackground.go: writes and rebuilds in the background
//	compare.go    two builds of skein in turn, over HTTP, with the same data in both; comparerows.go: the rows
package serving
