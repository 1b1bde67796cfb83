// Package command is what the commands of skein stand on: the standard streams, errors in how a command was called, the client of a
// running service, and progress, tables and texts for people.
//
//	flags ──▶ a command ──▶ [Client] ──▶ service
//	              │
//	              ├──▶ Out: data ([PrintJSON], [Table])
//	              └──▶ Err: everything for people ([Streams.Sayf], [Progress])
package command
