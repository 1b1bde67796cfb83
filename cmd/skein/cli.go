package main

import (
	"github.com/skein-feed/skein/cmd/skein/internal/imports"
	"github.com/skein-feed/skein/cmd/skein/internal/nodecmd"
	"github.com/skein-feed/skein/cmd/skein/internal/query"
	"github.com/skein-feed/skein/cmd/skein/internal/replaycmd"
	"github.com/skein-feed/skein/cmd/skein/internal/snapshots"
	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
)

// cli is the grammar of the command line. Every flag can also be given as an environment variable (SKEIN_ and its
// name in capitals) and in the configuration file; the command line wins over the environment, and that over the file.
type cli struct {
	Config  string      `help:"Configuration file: flags by name, or under the name of a command." placeholder:"FILE" type:"path"`
	Version versionFlag `help:"Print the version and how it was built, and exit." env:"-"`

	Demo        demoCmd            `cmd:"" help:"Show everything in a few seconds: a small world in a temporary directory, and a tour of it."`
	Serve       serveCmd           `cmd:"" help:"Run the service, with everything embedded unless --nats says otherwise."`
	Publish     publishCmd         `cmd:"" help:"Publish events from standard input, one JSON event a line."`
	Query       query.Cmd          `cmd:"" help:"Ask a running service who follows whom, what is new, what was seen, and how many."`
	Watch       watchCmd           `cmd:"" help:"Print events of a running service as they come, or from any position on."`
	Import      imports.Cmd        `cmd:"" help:"Import history from a file of delimited text, or from Redis."`
	Status      statuscmd.Cmd      `cmd:"" help:"Show the state of a running service."`
	Node        nodecmd.Cmd        `cmd:"" help:"List the nodes of a cluster, and drain them."`
	Replay      replaycmd.Cmd      `cmd:"" help:"Look after the projections of a running service."`
	Inspect     inspectCmd         `cmd:"" help:"Print the rows of a store with readable keys. The service must not be running."`
	Snapshot    snapshots.Cmd      `cmd:"" help:"Copy the stores of a running service, and look after the copies."`
	Restore     snapshots.Restore  `cmd:"" help:"Make stores of a snapshot. The service must not be running."`
	Export      exportCmd          `cmd:"" help:"Write the rows of a projection, or events, as NDJSON or Parquet."`
	Finalize    snapshots.Finalize `cmd:"" name:"finalize-upgrade" help:"Move stores to the newest format: earlier releases refuse them then."`
	Token       tokenCmd           `cmd:"" help:"Make tokens for those who call the service."`
	ConfigCmd   configCmd          `cmd:"" name:"config" help:"Print what serve would run with, secrets hidden, and from where each value is."`
	Healthcheck healthcheckCmd     `cmd:"" help:"Exit with 0 when a service is ready: for containers."`
	Completion  completionCmd      `cmd:"" help:"Print what makes a shell complete commands and flags."`

	FinishBuild finishBuildCmd `cmd:"" hidden:"" name:"finish-build" help:"Finish the build of a store; skein serve starts this."`

	VersionCmd versionCmd `cmd:"" name:"version" help:"Print the version and how it was built."`
}
