// Package workload has what the groups of rows share of what is measured with: the follow graph, always the same, its events, its
// index in Redis, and stores on disk that events are folded into without a service.
//
//	graph.go         the graph, and questions about it; graphredis.go: the same in Redis
//	events.go        the facts of it
//	fold.go          a store of a projection
//	log.go           a log that stores follow
package workload
