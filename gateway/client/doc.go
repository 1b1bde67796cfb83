// Package client asks a skein service, from Go. It is a thin layer over the generated Connect clients, which do all
// the work and are fields of [Client]: it dials, and it reads its own writes ([Session]).
//
// Lists are iterated by [Pages] and [Each]. [Client.Publish] retries without counting an event twice, and [Client.Watch],
// [Client.WatchFeed] and [Client.ScanFollowers] continue where their streams break.
//
// To publish without a gateway in between, see package events: a Publisher appends to the log itself.
package client
