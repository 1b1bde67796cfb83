// Package query is the command `skein query`, which has a subcommand for each read of the API. A
// subcommand fills in the request from its arguments and prints the answer as a table, or with
// --json as the API gives it.
package query
