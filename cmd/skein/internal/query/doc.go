// Package query is the command `skein query`, which has a subcommand for each read of the API. A
// subcommand fills in the request from its arguments. It prints the answer as a table or, with
// --json, in the JSON form of the API.
package query
