// Package gateway answers the API of skein: Connect, gRPC, gRPC-Web and plain JSON on one port. It holds no state of
// its own: it hands facts to the log and reads answers from the stores, so any number of processes over one log answer
// alike, and take each other's positions and page tokens.
//
//	request ─▶ decode ─▶ check ─▶ ┌ Publish: judge each event ─▶ followee cap ─▶ publisher ─▶ log
//	           (codec)  (protos,  │                                                  │
//	                     ids)     │             position ◀── fsynced ◀───────────────┘
//	                              │
//	                              └ reads: positions demanded ─▶ wait ─▶ one view ─▶ answer + position
//	                                       (at_least, token)         (graph, inbox, seen, counters)
//	                                                     ▲
//	         answer ◀─ finish: one mapping of errors ────┴── log ─▶ hub ─▶ stores
//	                   to codes, count, log
//
// # Where things are
//
//	gateway            options, New, Run, the table of rights, the way of a call
//	  ├─ mount.go ────▶ internal/{event,graph,feed,seen,counter,admin}service   one package a service: its methods
//	  │                   └─▶ internal/views   stores at one position;  internal/call   what a method knows of its call
//	  ├─ internal/http1       the loop beside net/http that answers plain calls; plain.go is its way into the server
//	  ├─ internal/admission   connections, budgets, rates of callers: what callers may take
//	  ├─ internal/request     codecs and rules of requests
//	  ├─ internal/apierror    errors as the API tells them, and the one table of them
//	  ├─ internal/metrics     what /metrics says
//	  └─ access, pagetoken, operator   the rights of callers, page tokens, and operations: what programs give to [New]
//
// # The way of a call
//
// Every method goes the same way (method.go), and what is of one method alone stands in its file.
//
//  1. A connection begins in a loop that reads plain calls, and goes to net/http with the first request that is not one
//     (package http1, docs/decisions/0017-http-loop.md). How many there are, and which makes room for another one, is in
//     package admission. The size of a call is bounded before anything is read, inflated or decoded: header, body, bytes of
//     all callers and of each, the lengths of lists (http.go, body.go, package request). Each kind of call and of stream
//     has a budget of its own, and reads that keep a processor busy run a few at a time. Package admission has the order in which a
//     request passes all of these.
//  2. The codec decodes. A message that does not decode is answered like every other error (package request). The codec decodes
//     and encodes frequent messages by hand. A unary call in binary Connect over HTTP/1.1 gets here from that loop (plain.go), every other
//     one through Connect's handler; all get the same answers.
//  3. The caller is identified before a body is read (package access). A caller without the permission is refused before the request
//     is looked at, and so is a caller who is bound to one user, if the request is about another (access.go; the table of all methods
//     is rights.go).
//  4. The request is held against the rules in its proto, and its ids are checked (package request). Four frequent calls do both by
//     hand: docs/decisions/0005-edge-validation.md.
//  5. A read waits until the store contains the positions that it demands, takes one view, answers all of it from that
//     view, and names its position (package views). The wait is bounded by the caller's deadline and by a limit.
//  6. Whatever goes wrong ends in one table (package apierror): a Connect code, a google.rpc.ErrorInfo with the domain
//     "skein" and a public reason, the fields at fault in a google.rpc.BadRequest, and when to try again in a
//     google.rpc.RetryInfo.
//
// # Invariants
//
// I2, acknowledged means on disk: Publish answers after the publisher has heard of the fsync. Its error is
// resource_exhausted or unavailable when nothing was taken, and deadline_exceeded when the events are, or may be, in
// the log.
//
// I9, a session does not shift: a page token holds a sort key (a time and ids, not an offset) and the position of the
// page before, which the next page must contain, so no page comes from an older state than the one before it. It is
// signed, and bound to its list. Tokens do not expire (packages pagetoken and views), but for those of feeds and lists by heat, which
// say so. A feed hides items that were seen at the page's position or later, and no later page
// reads an older state of the seen items (package feedservice).
//
// Reads change nothing.
//
// I11, bad input stops no other caller: every malformed request gets an error that names the field and the limit.
package gateway
