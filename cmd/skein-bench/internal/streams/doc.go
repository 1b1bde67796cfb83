// Package streams has the rows of a replicated log that many nodes read: a JetStream stream with three replicas, on three
// servers that sync every message. Messages have the size of an envelope and random bodies. Readers do not decode them.
//
//	log.go          the group: writing, reading while others write, reading the whole stream
//	stream.go       a stream, its publishers and its readers
//	consume.go      a reader that has pull consumers, as skein's reader of the log has
//	republish.go    a reader that takes republished messages, and gets missing ones directly
//	failover.go     a killed leader
package streams
