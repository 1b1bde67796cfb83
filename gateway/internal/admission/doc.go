// Package admission bounds what callers may take of a process, so that one who takes too much is refused before the others
// feel it:
//
//	connection ─▶ Connections: at most so many, half of them of one address; an idle one makes room
//	           ─▶ Hosts: without access control, only the names that mean this service
//	call ──────▶ Budgets: how many of each kind at a time; bytes that are held for them (Holding)
//	           ─▶ Shedder: a part of all calls, while they wait long for a processor
//	           ─▶ Quotas: how many a second, and at a time, of each caller
//	           ─▶ Heavy: expensive reads run a few at a time
//
// Nothing here knows of requests. What is refused is so with an [apierror.Failure] that says what the limit is; what was taken has
// to be given back.
package admission
