// Package command has what the commands of skein share: the standard streams, errors of usage, the
// client of a running service, and functions that print progress, tables and texts for people.
//
//	flags ──▶ a command ──▶ [Client] ──▶ service
//	              │
//	              ├──▶ Out: data ([PrintJSON], [Table])
//	              └──▶ Err: messages for people ([Streams.Sayf], [Progress])
package command
