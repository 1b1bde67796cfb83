// Package admission bounds the resources that callers may take of a process. A caller that takes too much is refused before the others
// feel it:
//
//	connection ─▶ Connections: at most so many, half of them of one address; an idle one makes room
//	           ─▶ Hosts: without access control, only the names that mean this service
//	call ──────▶ Budgets: how many of each kind at a time; bytes that are held for them (Holding)
//	           ─▶ Shedder: a part of all calls, while they wait long for a processor
//	           ─▶ Quotas: how many a second, and at a time, of each caller
//	           ─▶ Heavy: expensive reads run a few at a time
//
// Nothing here knows of requests. A refusal is an [apierror.Failure] that names the limit. The caller must give back what it has
// taken.
package admission
