package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// output runs a command that needs no service.
func output(args ...string) (code int, out string) {
	var text, trouble bytes.Buffer
	code = run(args, &command.Streams{Out: &text, Err: &trouble})
	return code, text.String() + trouble.String()
}

// TestHelp: help COMMAND is COMMAND --help, and what is of the command stands before what is of the connection.
func TestHelp(t *testing.T) {
	for _, command := range [][]string{nil, {"serve"}, {"replay", "verify"}, {"query", "feed"}} {
		code, asked := output(append([]string{"help"}, command...)...)
		_, flagged := output(append(slices.Clone(command), "--help")...)
		if code != exitOK || asked != flagged || !strings.Contains(asked, "Usage: skein") {
			t.Errorf("help %v: exit code %d\n%s", command, code, asked)
		}
	}
	_, page := output("help", "query", "feed")
	own, connection := strings.Index(page, "--hide-seen"), strings.Index(page, "Connection:")
	if own < 0 || connection < own || strings.Index(page, "--tls-ca") < connection {
		t.Errorf("the flags of the connection are in front:\n%s", page)
	}
}

// TestNegativeValues: a number below zero may stand after a space.
func TestNegativeValues(t *testing.T) {
	for line, want := range map[string]string{
		"serve --feed-threshold -1 --followee-cap -1": "serve --feed-threshold=-1 --followee-cap=-1",
		"serve --log-retention -1h --listen x":        "serve --log-retention=-1h --listen x",
		"query check ann -- --at-least -1":            "query check ann -- --at-least -1",
		"completion words -- --limit -1":              "completion words -- --limit -1",
		"status --json --watch":                       "status --json --watch",
	} {
		if got := strings.Join(understood(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if code, text := output("serve", "--check", "--data", t.TempDir(), "--followee-cap", "-1"); code == exitUsage {
		t.Error(text)
	}
}

// TestExitCodesAreDocumented: every command has a row in the table of docs/cli.md, and every row is of a command.
func TestExitCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, name := range regexp.MustCompile("`([a-z -]+)`").FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(line, "| ") {
				documented[name[1]] = true
			}
		}
	}
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		name := leaf.Name
		for up := leaf.Parent; up != nil && up.Parent != nil; up = up.Parent {
			name = up.Name + " " + name
		}
		if !documented[name] {
			t.Errorf("%s is not in the table", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in the table only", name)
	}
}
