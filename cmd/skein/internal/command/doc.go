// Package command has the parts that the commands of skein share: the standard streams, errors of usage, the client of a
// running service, and progress, tables and texts for people.
//
//	flags ──▶ a command ──▶ [Client] ──▶ service
//	              │
//	              ├──▶ Out: data ([PrintJSON], [Table])
//	              └──▶ Err: everything for people ([Streams.Sayf], [Progress])
package command
