// Package serving has the rows that are measured over the network, of a service that runs.
//
//	reads.go      point check, filter, newest page over HTTP against Redis and a service in front of it; agree.go: before anything is
//	              timed all must give the same answers to a sample of questions
//	ingest.go     durable follows until they are visible, against Redis with an append-only file; inprocess.go: the same without HTTP
//	latency.go    calls of all methods that read at a fifth of their saturation rates, also while events are written and while
//	              projections are rebuilt; loadworld.go: what the service holds; loadmethods.go: what it is asked;
//	              loadbackground.go: what continues meanwhile; overtime.go: calls of a home screen, second by second
//	compare.go    two builds of skein in turn, over HTTP, with the same world in both; comparerows.go: what is compared
package serving
