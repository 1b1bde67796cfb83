// Package admission limits what callers may use of a process, so that a caller who uses too much is
// refused before other callers notice. It has three concepts:
//
//  1. [Connections] limits how many connections are open, in total and per client address. A new connection above the limit replaces one that has
//     no call in work, so a client cannot keep others out by holding connections.
//  2. [Budget] limits how much of one class is in use at a time, by all callers together and by each caller. A class is a kind of calls (reads,
//     writes, calls of operators, health checks), the streams of one method, or the bytes of requests and answers. classes.go lists all classes.
//     What exceeds a budget is refused at once; only expensive reads and long pages wait for their turn. In addition, while calls wait long for a
//     processor, the budgets of reads, writes and streams refuse a share of what arrives ([LoadShedder]), because then the processors are fully
//     used before any limit is reached.
//  3. [CallerRates] limits how many calls per second each caller may make.
//
// # What a request passes
//
// Package gateway takes a place in each of these budgets, from top to bottom, and holds it for the
// time in the last column. If a budget refuses, the places above it are given back, and nothing has
// been done for the request.
//
//	connection   Connections                              until it is closed
//	head         Requests, HealthRequests,                until the client has read the answer; only for requests that net/http
//	             StreamRequests                           reads, because those may arrive as slowly as their client sends them
//	body         Bytes, beyond 4 KiB                      until the client has read the answer
//	call         Health, Operators, Writes, Reads,        until the answer is made, or the stream ends
//	             or the streams of the method
//	caller       Callers, CallerRates                     as for the call; not for methods that need no token
//	query        ExpensiveReads, LongPages                until the page is made; only for such reads, which wait for a place
//	answer       Bytes, beyond 4 KiB                      until the client has read the answer
//
// Requests for /metrics and for reflection pass Pages instead of everything after the connection.
//
// This package does not know what a request means. A refusal is an [apierror.Failure] that names
// the limit, its value, and the flag that sets it.
package admission
