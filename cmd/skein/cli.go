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

	// The help shows the commands in this order, by group.
	Demo    demoCmd       `cmd:"" group:"Most used:" help:"Show everything in a few seconds: a small world in a temporary directory, and a tour of it."`
	Serve   serveCmd      `cmd:"" group:"Most used:" help:"Run the service, with everything embedded unless --nats says otherwise."`
	Status  statuscmd.Cmd `cmd:"" group:"Most used:" help:"Show the state of a running service."`
	Publish publishCmd    `cmd:"" group:"Most used:" help:"Publish events from standard input, one JSON event a line."`
	Query   query.Cmd     `cmd:"" group:"Most used:" help:"Ask a running service who follows whom, what is new, what was seen, and how many."`
	Watch   watchCmd      `cmd:"" group:"Most used:" help:"Print events of a running service as they come, or from any position on."`

	Import imports.Cmd `cmd:"" group:"Data in and out:" help:"Import history from a file of delimited text, or from Redis."`
	Export exportCmd   `cmd:"" group:"Data in and out:" help:"Write the rows of a projection, or events, as NDJSON or Parquet."`

	Replay   replaycmd.Cmd      `cmd:"" group:"Administration:" help:"Look after the projections of a running service: rebuild, verify, repair, erase a user."`
	Snapshot snapshots.Cmd      `cmd:"" group:"Administration:" help:"Copy the stores of a running service, and look after the copies."`
	Restore  snapshots.Restore  `cmd:"" group:"Administration:" help:"Make stores of a snapshot. The service must not be running."`
	Node     nodecmd.Cmd        `cmd:"" group:"Administration:" help:"List the nodes of a cluster, and drain them."`
	Token    tokenCmd           `cmd:"" group:"Administration:" help:"Make tokens for those who call the service."`
	Finalize snapshots.Finalize `cmd:"" group:"Administration:" name:"finalize-upgrade" help:"Move stores to the newest format, which earlier releases refuse."`
	Inspect  inspectCmd         `cmd:"" group:"Administration:" help:"Print the rows of a store with readable keys. The service must not be running."`

	ConfigCmd   configCmd      `cmd:"" group:"Other:" name:"config" help:"Print what serve would run with, secrets hidden, and from where each value is."`
	Healthcheck healthcheckCmd `cmd:"" group:"Other:" help:"Exit with 0 when a service is ready: for containers."`
	Completion  completionCmd  `cmd:"" group:"Other:" help:"Print what makes a shell complete commands and flags."`
	VersionCmd  versionCmd     `cmd:"" group:"Other:" name:"version" help:"Print the version and how it was built."`
	FinishBuild finishBuildCmd `cmd:"" group:"Other:" hidden:"" name:"finish-build" help:"Finish the build of a store; skein serve starts this."`
}
