// Package gateway serves the API of skein: Connect, gRPC, gRPC-Web and plain JSON on one port. It
// keeps no state of its own. It appends events to the log and answers reads from the stores, so any
// number of processes over one log give the same answers, and each accepts the positions and page
// tokens that another has issued.
//
//	request ─▶ decode ─▶ check ─▶ ┌ Publish: judge each event ─▶ followee cap ─▶ publisher ─▶ log
//	           (codec)  (protos,  │                                                  │
//	                     ids)     │             position ◀── fsynced ◀───────────────┘
//	                              │
//	                              └ reads: positions demanded ─▶ wait ─▶ one view ─▶ answer + position
//	                                       (at_least, token)         (graph, inbox, seen, counters)
//	                                                     ▲
//	         answer ◀─ finishCall: one mapping of ───────┴── log ─▶ hub ─▶ stores
//	                   errors to codes, count, log
//
// # Where things are
//
//	gateway            options, New, Run, the table of rights, the steps of a call
//	  ├─ mount.go ────▶ internal/{event,graph,feed,seen,counter,admin}service   the methods, one package per service
//	  │                   └─▶ internal/views   stores at one position;  internal/call   what a method knows of its call
//	  ├─ internal/http1       the loop beside net/http that answers plain calls; plain.go connects it to the server
//	  ├─ internal/admission   limits on connections, concurrent work, memory and call rates
//	  ├─ internal/request     codecs and validation of requests
//	  ├─ internal/apierror    errors as the API returns them, and the one table that maps errors to them
//	  ├─ internal/metrics     the metrics that /metrics exposes
//	  └─ access, pagetoken, operator   rights of callers, page tokens and operations: what programs pass to [New]
//
// # The steps of a call
//
// Every method takes the same steps (method.go). Only what is specific to one method is in the file
// of that method.
//
//  1. A connection starts in the loop of package http1, which answers plain calls. With the first request that is not a plain call, it
//     moves to net/http for good (docs/decisions/0017-http-loop.md). Package admission limits how many connections are open and decides
//     which one is closed for a new one. The size of a call is limited before anything is read, decompressed or decoded: its header, its
//     body, the bytes of all callers and of each caller, and the lengths of its lists (http.go, body.go, package request). Each class of
//     calls and each stream method has a budget of its own, and only a few CPU-intensive reads run at a time. Package admission lists the
//     order in which a request passes all of these limits.
//  2. The codec decodes the body. A body that does not decode gets an error like all others (package request). Frequent messages are
//     decoded and encoded by hand-written code. A unary call in binary Connect over HTTP/1.1 arrives here from the loop (plain.go), every
//     other call from Connect's handler. The answers are the same.
//  3. The caller is authenticated before the body is read (package access). A caller without the required role is refused before the
//     request is examined. A caller who is bound to one user is refused if the request is about another user (access.go; rights.go has the
//     table of all methods).
//  4. The request is checked against the rules in its proto, and its ids are checked (package request). Four frequent calls do both in
//     hand-written code: docs/decisions/0005-edge-validation.md.
//  5. A read waits until the store contains the positions that the request demands. Then it takes one view, answers everything from that
//     view, and returns the view's position (package views). The wait is limited by the caller's deadline and by a configured limit.
//  6. One table maps every error (package apierror) to a Connect code, a google.rpc.ErrorInfo with the domain "skein" and a public reason,
//     a google.rpc.BadRequest that lists the invalid fields, and a google.rpc.RetryInfo that says when a retry makes sense.
//
// # Invariants
//
// I2, acknowledged means on disk: Publish answers after the publisher has learned of the fsync. It
// fails with resource_exhausted or unavailable if no event was accepted, and with deadline_exceeded
// if the events are, or may be, in the log.
//
// I9, a session never goes back in time: a page token holds a sort key (a time and ids, not an
// offset) and the position of its page. The next page must contain that position, so it never comes
// from an older state than the page before. Tokens are signed, and each is bound to its list. They
// do not expire (packages pagetoken and views), except those of feeds and lists by heat, whose
// errors say so. A feed hides items that were seen at the position of the page or later, and no
// later page reads an older state of the seen items (package feedservice).
//
// Reads change nothing.
//
// I11, bad input affects no other caller: every malformed request gets an error that names the
// field and the limit.
package gateway
