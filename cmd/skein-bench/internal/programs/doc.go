// Package programs starts, drives and stops what the bench measures, all of it on this machine, over TCP on the loopback, on free
// ports, below one temporary directory. Nothing waits by sleeping: each program is polled until it answers.
//
//	process.go      a program that runs
//	skein.go        skein serve, built as it is released
//	redis.go        redis-server, fresh, without a configuration file; redisaof.go: one that loads an append-only file
//	service.go      a Connect service in front of that Redis: a hidden command of skein-bench, a process of its own
//	wrk.go, redisbench.go    the drivers of others
//	callconn.go, resp.go         those of our own: calls and pipelines over kept connections
package programs
