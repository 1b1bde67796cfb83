package main

import (
	"cmp"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/imports"
	"github.com/skein-feed/skein/cmd/skein/internal/nodecmd"
	"github.com/skein-feed/skein/cmd/skein/internal/query"
	"github.com/skein-feed/skein/cmd/skein/internal/replaycmd"
	"github.com/skein-feed/skein/cmd/skein/internal/snapshots"
	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
)

// cli is the grammar of the command line. Every flag can also be given as an environment variable
// (SKEIN_ and the name of the flag in capitals) and in the configuration file. The command line
// overrides the environment, and the environment overrides the file.
type cli struct {
	Config  string      `help:"Configuration file in YAML: flags by name, at the top or under the name of a command." placeholder:"FILE" type:"path"`
	Version versionFlag `help:"Print the version and how it was built, and exit." env:"-"`

	// The help shows the commands in this order, by group.
	Demo    demoCmd       `cmd:"" group:"Most used:" help:"Try everything in a few seconds: a service with made-up users, and a tour of the API."`
	Serve   serveCmd      `cmd:"" group:"Most used:" help:"Run the service. It has its own log unless --nats names NATS servers."`
	Status  statuscmd.Cmd `cmd:"" group:"Most used:" help:"Show the state of a running service."`
	Publish publishCmd    `cmd:"" group:"Most used:" help:"Publish events from standard input, one JSON object per line."`
	Query   query.Cmd     `cmd:"" group:"Most used:" help:"Ask a running service for follows, feeds, seen items and counts."`
	Watch   watchCmd      `cmd:"" group:"Most used:" help:"Print the events of a running service as they arrive, or from any position on."`

	Import imports.Cmd `cmd:"" group:"Data in and out:" help:"Import history from a file of delimited text, or from Redis."`
	Export exportCmd   `cmd:"" group:"Data in and out:" help:"Write the rows of a projection, or events, as NDJSON or Parquet."`

	Replay   replaycmd.Cmd      `cmd:"" group:"Administration:" help:"Rebuild, verify and repair the projections of a running service, and erase users."`
	Snapshot snapshots.Cmd      `cmd:"" group:"Administration:" help:"Copy the stores of a running service, and list, check and delete copies."`
	Restore  snapshots.Restore  `cmd:"" group:"Administration:" help:"Make stores from a snapshot. The service must not be running."`
	Node     nodecmd.Cmd        `cmd:"" group:"Administration:" help:"List the nodes of a cluster, and drain them."`
	Token    tokenCmd           `cmd:"" group:"Administration:" help:"Make tokens for the programs that call the service."`
	Finalize snapshots.Finalize `cmd:"" group:"Administration:" name:"finalize-upgrade" help:"Move stores to the newest format, which earlier releases refuse."`
	Inspect  inspectCmd         `cmd:"" group:"Administration:" help:"Print the rows of a store with readable keys. The service must not be running."`

	ConfigCmd   configCmd      `cmd:"" group:"Other:" name:"config" help:"Print the settings that serve would use, without secrets, and their origins."`
	Healthcheck healthcheckCmd `cmd:"" group:"Other:" help:"Exit with 0 if a service is ready. For containers."`
	Completion  completionCmd  `cmd:"" group:"Other:" help:"Print shell code that completes commands and flags."`
	VersionCmd  versionCmd     `cmd:"" group:"Other:" name:"version" help:"Print the version and how it was built."`
	FinishBuild finishBuildCmd `cmd:"" group:"Other:" hidden:"" name:"finish-build" help:"Finish the build of a store; skein serve starts this."`
}

// grammarFor returns the grammar that parses the arguments: a *cli, or the same with only the
// command that the first argument names. Without the smaller grammar, a short command spends half
// of its time in Kong, which reads the tags of every flag of every command.
func grammarFor(args []string) any {
	if len(args) == 0 || needsAllCommands(args) {
		return &cli{}
	}

	// Keep the flags before the commands, and the command that is named.
	var fields []reflect.StructField
	found := false
	for field := range reflect.TypeFor[cli]().Fields() {
		_, isCommand := field.Tag.Lookup("cmd")
		isNamed := isCommand && args[0] == cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name))
		if isNamed || !isCommand {
			fields = append(fields, field)
		}
		found = found || isNamed
	}
	if !found {
		return &cli{}
	}
	return reflect.New(reflect.StructOf(fields)).Interface()
}

// needsAllCommands reports whether the command reads the whole grammar: to complete words, to print
// the reference, or because names in a configuration file may belong to any command.
func needsAllCommands(args []string) bool {
	readsFile := func(arg string) bool { return strings.HasPrefix(arg, "--config") }
	return args[0] == "completion" || args[0] == "config" || os.Getenv("SKEIN_CONFIG") != "" || slices.ContainsFunc(args, readsFile)
}
