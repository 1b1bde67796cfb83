// Skein is a service for follows, feeds and seen items, and the command line with all its tools. The
// commands are in cli.go, the parts of a service process in internal/service.
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

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	// exitUsage: the command line, environment or configuration file is wrong; nothing was done.
	exitUsage = 2
	// exitInterrupted: interrupted by a signal before the end.
	exitInterrupted = 130
)

func main() {
	restrictUmask()
	os.Exit(run(os.Args[1:], &command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// requestedExit carries the exit code of --help and --version. Kong calls a function that must end the program; ours panics with an requestedExit,
// and run catches it.
type requestedExit int

// run runs a command line and returns the exit code. Tests pass additional options.
func run(args []string, std *command.Streams, more ...kong.Option) (code int) {
	defer func() {
		if p := recover(); p != nil {
			now, ok := p.(requestedExit)
			if !ok {
				panic(p)
			}
			code = int(now)
		}
	}()
	var c cli
	parser, err := kong.New(&c, append(more,
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
		std.Sayf("Run \"skein help\", or \"skein help COMMAND\", for what there is.")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal begins an orderly stop. After it, signals have their usual effect, so that a second one ends the process.
	defer context.AfterFunc(ctx, stop)()
	parsed.BindTo(ctx, (*context.Context)(nil))
	return exitCode(ctx, parsed.Run(std), std)
}

var (
	longFlag = regexp.MustCompile(`^--[a-z][a-z0-9-]*$`)
	negative = regexp.MustCompile(`^-[0-9]`)
)

// understood rewrites arguments for the parser: "help COMMAND" becomes COMMAND with --help, and a negative number is joined to the flag
// before it, because the parser would take it for another flag.
func normalizeArgs(args []string) []string {
	if len(args) == 0 || args[0] == "completion" {
		return args
	}
	if args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	var out []string
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if n := len(out); n > 0 && longFlag.MatchString(out[n-1]) && negative.MatchString(arg) {
			out[n-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

func exitCode(ctx context.Context, err error, std *command.Streams) int {
	var misused command.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, command.ErrSilent):
		return exitFailed
	case errors.As(err, &misused):
		std.Sayf("skein: %v", err)
		return exitUsage
	case errors.Is(err, context.Cause(ctx)), errors.Is(err, ctx.Err()):
		std.Sayf("skein: interrupted by a signal")
		return exitInterrupted
	}
	// An error may quote a file or a service. Only the ends of lines are ours.
	lines := strings.Split(command.Explain(err), "\n")
	for i, line := range lines {
		lines[i] = events.EscapeControls(line)
	}
	std.Sayf("skein: %s", strings.Join(lines, "\n"))
	return exitFailed
}
