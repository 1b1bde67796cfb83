// Package programs starts, drives and stops the programs that the bench measures. All of them run
// on this machine, listen on free ports of the loopback, and keep their files below one temporary
// directory. The bench never sleeps until a program is ready, but polls it until it answers.
//
//	process.go               a program that runs
//	skein.go                 skein serve, built as releases are
//	redis.go                 redis-server without a configuration file; redisaof.go: one that loads an append-only file
//	service.go               a Connect service that answers from that Redis: a hidden command of skein-bench, in a process of its own
//	wrk.go, redisbench.go    clients that others wrote: wrk and redis-benchmark
//	callconn.go, resp.go     our own clients: connections over which calls, or pipelines for Redis, are sent one after the other
//	cores.go                 which processor cores the service and its client use
package programs
