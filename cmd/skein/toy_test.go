package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// toyCmd is a complete command, made as docs/development.md says how to add one: the type, a line
// in the list of commands ([toyOption] here), a row in the table of exit codes, and a script.
type toyCmd struct {
	Times int    `help:"How often."`
	Word  string `arg:"" help:"What to say."`
}

// Run says the word.
func (c *toyCmd) Run(ctx context.Context, std *command.Streams) error {
	switch {
	case c.Times < 0:
		return command.Usagef("--times is %d: it must be at least 0", c.Times)
	case c.Word == "failed":
		return os.ErrNotExist
	}
	for range c.Times {
		fmt.Fprintln(std.Out, c.Word)
	}
	return ctx.Err()
}

const (
	toyHelp   = "Say a word some times."
	toyRow    = "\n| `toy` | it was told to fail |\n"
	toyScript = "exec skein toy --times 2 hey\nstdout hey\n"
)

// toyOption adds the command to the command line.
func toyOption() []kong.Option {
	return []kong.Option{kong.DynamicCommand("toy", toyHelp, "", &toyCmd{})}
}

// TestToyCommand demands that a command that is only added to the list has all that every command
// has: help, values of its flags from the environment and the file, exit codes, completion and a
// place in the reference.
func TestToyCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skein.yaml")
	if err := os.WriteFile(file, []byte("toy: {times: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		args       string
		envTimes   string // the environment's
		wantCode   int
		wantOutput string
	}{
		"flag":                {args: "toy --times 3 hey", wantOutput: strings.Repeat("hey\n", 3)},
		"environment":         {args: "toy hey", envTimes: "1", wantOutput: "hey\n"},
		"configuration file":  {args: "toy hey --config " + file, wantOutput: strings.Repeat("hey\n", 2)},
		"in the list of help": {args: "help", wantOutput: toyHelp},
		"page of help":        {args: "help toy", wantOutput: "How often ($SKEIN_TIMES)."},
		"completed command":   {args: "completion words -- to", wantOutput: "token\ntoy\n"},
		"completed flag":      {args: "completion words -- toy --ti", wantOutput: "--times\n"},
		"in the reference":    {args: "config --reference", wantOutput: "## skein toy\n\n" + toyHelp + "\n\n| flag | environment | default | |\n|---|---|---|---|\n| `--times N` | `SKEIN_TIMES` |  | How often. |\n"},
		"no word":             {args: "toy", wantCode: exitUsage, wantOutput: `expected "<word>"`},
		"unknown flag":        {args: "toy --tines 3 hey", wantCode: exitUsage, wantOutput: "unknown flag --tines"},
		"negative number":     {args: "toy --times -1 hey", wantCode: exitUsage, wantOutput: "--times is -1: it must be at least 0"},
		"failure":             {args: "toy failed", wantCode: exitFailed, wantOutput: "skein: file does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.envTimes != "" {
				t.Setenv("SKEIN_TIMES", tt.envTimes)
			}
			if wantCode, out := runCLIWith(toyOption(), strings.Fields(tt.args)...); wantCode != tt.wantCode || !strings.Contains(out, tt.wantOutput) {
				t.Errorf("exit code %d, want %d\n%s", wantCode, tt.wantCode, out)
			}
		})
	}
}

// TestMissingPartsOfACommandAreNamed demands that exactly those parts of the list are named that a
// new command lacks.
func TestMissingPartsOfACommandAreNamed(t *testing.T) {
	page, run := readExitCodesPage(t), readScripts(t)

	head, tail, _ := strings.Cut(page, "\n| `watch` |")
	row := head + toyRow + "| `watch` |" + tail
	for name, tt := range map[string]struct {
		options       []kong.Option
		page, scripts string
		want          []string
	}{
		"complete":  {toyOption(), row, run + toyScript, nil},
		"no line":   {nil, row, run, []string{"toy: no command, but a row among the exit codes of docs/cli.md"}},
		"no row":    {toyOption(), page, run + toyScript, []string{"toy: no row among the exit codes of docs/cli.md"}},
		"no script": {toyOption(), row, run, []string{"toy: no script in testdata/script runs it"}},
		"no help": {
			[]kong.Option{kong.DynamicCommand("toy", "", "", &struct{ Times int }{})},
			row, run + toyScript,
			[]string{"toy: no help", "toy --times: no help"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			parser, err := kong.New(&cli{}, tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			if got := missingParts(parser.Model, tt.page, tt.scripts); !slices.Equal(got, tt.want) {
				t.Errorf("lacks %q, want %q", got, tt.want)
			}
		})
	}
}
