// Package admission bounds what callers may take of a process, so that a caller who takes too much is refused before the others
// feel it. It has three concepts.
//
//  1. [Connections]: how many connections are open, and how many of them come from one client address. A new connection closes one
//     on which nothing is worked on, so that a client cannot keep others out by holding connections.
//  2. [Budget]: how much of one class is held at a time, by all callers together and by each caller. A class is a kind of call
//     (reads, writes, calls of operators, health checks), the streams of one method, or the bytes of requests and answers; classes.go
//     lists all of them. What exceeds a budget is refused at once; only expensive reads and long pages wait for their turn. The
//     budgets of reads, writes and streams also refuse a part of what comes while calls wait long for a processor ([Processors]):
//     then the processors are used up before any limit is reached.
//  3. [CallerRates]: how many calls a second each caller may make.
//
// # What a request passes
//
// Package gateway takes a place in each of these, from top to bottom, and gives each back when the time ends that is named beside it. If
// one refuses, those above are given back, and nothing has been done for the request.
//
//	connection   Connections                              until it is closed
//	head         Requests, HealthRequests,                until the client has taken the answer; only for requests that
//	             StreamRequests                           net/http reads, since they may arrive as slowly as their client wants
//	body         Bytes, beyond 4 KiB                      until the client has taken the answer
//	call         Health, Operators, Writes, Reads,        until the answer is made, or the stream ends
//	             or the streams of the method
//	caller       Callers, CallerRates                     the same; not for methods that need no token
//	query        ExpensiveReads, LongPages                until the page is made; only for such reads, which wait for a place
//	answer       Bytes, beyond 4 KiB                      until the client has taken the answer
//
// Requests for /metrics and for reflection pass Pages instead of all that follows the connection.
//
// Nothing here knows what a request is. A refusal is an [apierror.Failure] that names the limit, its value, and the flag that sets it.
package admission
