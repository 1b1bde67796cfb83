// Package client asks a skein service, from Go. It is a thin layer over the generated Connect clients, which do all
// the work and are fields of [Client]: it dials, and it reads its own writes.
//
// To publish without a gateway in between, see package events: a Publisher appends to the log itself.
package client
