// Package console serves the page at /console/. The page shows what the service is doing and why a
// pin is or is not in a feed, and starts operations. The package only serves files: the page gets
// everything that it shows from the API, with the rights of the token that its user enters.
//
// The sources are in the folder web. They are TypeScript, which the command "task console:build"
// compiles into the folder dist. dist is committed, so that building skein needs only Go.
package console
