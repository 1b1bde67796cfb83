// Package client calls a skein service from Go.
//
// A [Client] has a generated Connect client for each service, and these make the calls. The package
// adds what most programs need beyond that:
//
//   - [Dial] makes a client with connections that suit a service, and sends a token.
//   - [Session] makes a program read its own writes.
//   - [Pages] and [Each] iterate over lists.
//   - [Client.Publish] retries without publishing an event twice.
//   - [Client.Watch], [Client.WatchFeed] and [Client.ScanFollowers] continue their streams when these break.
//
// A program can also publish without a gateway: a Publisher of package eventlog appends to the log
// itself.
package client
