// Package query is the command `skein query`: every read of the API, one file a service. Each is one call, or one a page.
package query
