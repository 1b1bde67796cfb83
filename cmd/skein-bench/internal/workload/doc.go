// Package workload has the data that several groups of rows measure with: a follow graph, which is
// the same in every run, the events that make it, the same graph in Redis, and stores on disk into
// which events are folded without a service.
//
// To fold is to apply events to a store, one after the other. An envelope is a group of events that
// the log writes together.
//
//	graph.go         the graph, and random questions about it; graphredis.go: the same graph in Redis
//	events.go        events of follows and pins
//	fold.go          a store of one projection that is folded without a log
//	log.go           the log from which stores read
package workload
