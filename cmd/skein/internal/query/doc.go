// Package query is the command `skein query`: every read of the API, one file a service. Each command makes one call, or one for each page.
package query
