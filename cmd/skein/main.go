// Skein is the service for follows, feeds, seen items and counts, and the command line with all its
// tools. cli.go lists the commands; a command is a file beside it or a package in internal. The
// parts of a service process are in internal/service.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
)

// Exit codes, as docs/cli.md explains them.
const (
	exitOK     = 0
	exitFailed = 1
	// exitUsage means that the command line, the environment or the configuration file is wrong.
	// The command did nothing.
	exitUsage = 2
	// exitInterrupted means that a signal ended the command early. It is what a shell returns for a
	// program that SIGINT killed: 128 + 2.
	exitInterrupted = 130
)

func main() {
	restrictUmask()
	os.Exit(run(os.Args[1:], &command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// requestedExit carries the exit code of --help and --version to run. To end the program, Kong
// calls a function that must not return. Ours panics with a requestedExit, which run recovers, so
// that tests can call run.
type requestedExit int

// run runs a command line and returns its exit code. Tests pass additional options.
func run(args []string, std *command.Streams, more ...kong.Option) (code int) {
	defer func() {
		if p := recover(); p != nil {
			requested, ok := p.(requestedExit)
			if !ok {
				panic(p)
			}
			code = int(requested)
		}
	}()

	parser, err := kong.New(grammarFor(args), append(more,
		kong.Name("skein"),
		kong.Description("Who follows whom, what is new for me, what have I already seen: from one log of events."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, NoExpandSubcommands: true}),
		kong.DefaultEnvars("SKEIN"),
		kong.Resolvers(&configFile{flag: "config"}),
		kong.Writers(std.Out, std.Err),
		kong.Exit(func(code int) { panic(requestedExit(code)) }),
	)...)
	if err != nil {
		std.Sayf("skein: %v", err)
		return exitUsage
	}
	parsed, err := parser.Parse(normalizeArgs(args))
	if err != nil {
		std.Sayf("skein: %v", err)
		std.Sayf("Run \"skein help\" for the commands, or \"skein help COMMAND\" for the flags of one.")
		return exitUsage
	}

	// The first signal begins an orderly stop. From then on signals have their usual effect, so
	// that a second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()

	parsed.BindTo(ctx, (*context.Context)(nil))
	return exitCode(ctx, parsed.Run(std), std)
}

var (
	longFlag       = regexp.MustCompile(`^--[a-z][a-z0-9-]*$`)
	negativeNumber = regexp.MustCompile(`^-[0-9]`)
)

// normalizeArgs rewrites arguments for the parser: "help COMMAND" becomes COMMAND with --help, and
// a negative number is joined to the flag before it, because the parser would take the number for
// another flag.
func normalizeArgs(args []string) []string {
	if len(args) == 0 || args[0] == "completion" {
		return args
	}
	if args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}

	var normalized []string
	for i, arg := range args {
		if arg == "--" { // what follows is no flag
			return append(normalized, args[i:]...)
		}
		last := len(normalized) - 1
		if last >= 0 && longFlag.MatchString(normalized[last]) && negativeNumber.MatchString(arg) {
			normalized[last] += "=" + arg
			continue
		}
		normalized = append(normalized, arg)
	}
	return normalized
}

// exitCode prints the error with which a command has ended, and returns the exit code.
func exitCode(ctx context.Context, err error, std *command.Streams) int {
	var usageError command.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, command.ErrSilent): // the command itself has printed what failed
		return exitFailed
	case errors.As(err, &usageError):
		std.Sayf("skein: %v", err)
		return exitUsage
	case errors.Is(err, context.Cause(ctx)), errors.Is(err, ctx.Err()):
		std.Sayf("skein: interrupted by a signal")
		return exitInterrupted
	}

	// An error may quote a file or the answer of a service, whose control characters a terminal
	// would obey. Only the ends of lines are ours.
	lines := strings.Split(command.Explain(err), "\n")
	for i, line := range lines {
		lines[i] = events.EscapeControls(line)
	}
	std.Sayf("skein: %s", strings.Join(lines, "\n"))
	return exitFailed
}
