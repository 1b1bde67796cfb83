// Package console is the page at /console: what the service is doing, why a pin is or is not in a feed, and operations. It is files and
// nothing else: all that it shows comes by the API, for a caller with the rights of its token.
//
// The sources are in web, TypeScript that `task console:build` turns into dist, which is committed: to build skein needs Go alone.
package console
