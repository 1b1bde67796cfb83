package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// runCLI runs a command that needs no service, and returns all that it prints.
func runCLI(args ...string) (code int, out string) { return runCLIWith(nil, args...) }

// runCLIWith does the same with a command line that has more commands than [cli].
func runCLIWith(options []kong.Option, args ...string) (code int, out string) {
	var text, errOut bytes.Buffer
	code = run(args, &command.Streams{Out: &text, Err: &errOut}, options...)
	return code, text.String() + errOut.String()
}

// TestHelpCommandEqualsHelpFlag demands that `help COMMAND` prints the same as `COMMAND --help`,
// and that the flags of the command come before the flags of the connection.
func TestHelpCommandEqualsHelpFlag(t *testing.T) {
	for _, command := range [][]string{nil, {"serve"}, {"replay", "verify"}, {"query", "feed"}} {
		code, asked := runCLI(append([]string{"help"}, command...)...)
		_, flagged := runCLI(append(slices.Clone(command), "--help")...)
		if code != exitOK || asked != flagged || !strings.Contains(asked, "Usage: skein") {
			t.Errorf("help %v: exit code %d\n%s", command, code, asked)
		}
	}
	_, page := runCLI("help", "query", "feed")
	own, connection := strings.Index(page, "--hide-seen"), strings.Index(page, "Connection:")
	if own < 0 || connection < own || strings.Index(page, "--tls-ca") < connection {
		t.Errorf("the flags of the connection are in front:\n%s", page)
	}
}

// TestHelpFitsOnOneScreen demands that the first page of help has one line for each command, in
// groups, with the most used commands first.
func TestHelpFitsOnOneScreen(t *testing.T) {
	_, page := runCLI("--help")
	lines := strings.Split(strings.TrimSpace(page), "\n")
	if len(lines) > 50 {
		t.Errorf("expected at most 50 lines, got %d", len(lines))
	}
	var found []string
	for _, line := range lines {
		for _, start := range []string{"Most used:", "  demo ", "  serve ", "Data in and out:", "  import ", "Administration:", "  replay ", "Other:", "Flags:"} {
			if strings.HasPrefix(line, start) {
				found = append(found, strings.TrimSpace(start))
			}
		}
	}
	want := []string{"Most used:", "demo", "serve", "Data in and out:", "import", "Administration:", "replay", "Other:", "Flags:"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("%s\n%s", diff, page)
	}
	if _, page := runCLI("replay", "--help"); !strings.Contains(page, "rebuild") || !strings.Contains(page, "erase") {
		t.Errorf("replay --help does not list its commands:\n%s", page)
	}
}

// TestStartMessageNamesAddressAndConsole demands that the person who starts the service reads its
// addresses.
func TestStartMessageNamesAddressAndConsole(t *testing.T) {
	const url = "http://127.0.0.1:7411"
	for withConsole, want := range map[bool]string{
		false: "skein serves at " + url,
		true:  "skein serves at " + url + ", the console at " + url + "/console/",
	} {
		if got := describeAddress(url, withConsole); got != want {
			t.Errorf("expected %q, got %q", want, got)
		}
	}
}

// TestNegativeFlagValueMayFollowASpace demands that a negative number after a space is the value of
// the flag before it.
func TestNegativeFlagValueMayFollowASpace(t *testing.T) {
	for line, want := range map[string]string{
		"serve --feed-threshold -1 --followee-cap -1": "serve --feed-threshold=-1 --followee-cap=-1",
		"serve --log-retention -1h --listen x":        "serve --log-retention=-1h --listen x",
		"query check ann -- --at-least -1":            "query check ann -- --at-least -1",
		"completion words -- --limit -1":              "completion words -- --limit -1",
		"status --json --watch":                       "status --json --watch",
	} {
		if got := strings.Join(normalizeArgs(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if code, text := runCLI("serve", "--check", "--data", t.TempDir(), "--followee-cap", "-1"); code == exitUsage {
		t.Error(text)
	}
}

// TestEveryCommandHasItsParts demands of every command all that the list of docs/development.md
// demands of a new one.
func TestEveryCommandHasItsParts(t *testing.T) {
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lack := range missingParts(parser.Model, readExitCodesPage(t), readScripts(t)) {
		t.Error(lack)
	}
}

// readExitCodesPage returns the page with the table of exit codes.
func readExitCodesPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// readScripts returns the scenarios of [TestScripts] in one text.
func readScripts(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// missingParts returns what commands lack: help for them and their flags, a row in the table of
// exit codes, and a script that runs them. It also returns rows without a command.
func missingParts(model *kong.Application, page, scripts string) (lacks []string) {
	documented, run := commandsWithExitCodes(page), commandsRunByScripts(model.Node, scripts)
	for _, leaf := range model.Leaves(true) {
		name := strings.Join(commandPath(leaf), " ")
		if leaf.Help == "" {
			lacks = append(lacks, name+": no help")
		}
		for _, f := range leaf.Flags {
			if f.Help == "" {
				lacks = append(lacks, name+" --"+f.Name+": no help")
			}
		}
		if !documented[name] {
			lacks = append(lacks, name+": no row among the exit codes of docs/cli.md")
		}
		if !run[leaf] {
			lacks = append(lacks, name+": no script in testdata/script runs it")
		}
		delete(documented, name)
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		lacks = append(lacks, name+": no command, but a row among the exit codes of docs/cli.md")
	}
	return lacks
}

// commandsWithExitCodes returns the commands that the table of exit codes names.
func commandsWithExitCodes(page string) map[string]bool {
	_, section, _ := strings.Cut(page, "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		row, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			continue
		}
		cell, _, _ := strings.Cut(row, " | ")
		for _, name := range regexp.MustCompile("`([a-z -]+)`").FindAllStringSubmatch(cell, -1) {
			documented[name[1]] = true
		}
	}
	return documented
}

// commandsRunByScripts returns the commands that the scripts run.
func commandsRunByScripts(root *kong.Node, scripts string) map[*kong.Node]bool {
	run := map[*kong.Node]bool{}
	for _, line := range regexp.MustCompile(`(?m)^(?:! )?(?:exec skein|until (?:'[^']*'|\S+)) (.+)$`).FindAllStringSubmatch(scripts, -1) {
		node := root
		for word := range strings.FieldsSeq(line[1]) {
			if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
				node = node.Children[i]
			}
		}
		if node.DefaultCmd != nil {
			node = node.DefaultCmd
		}
		run[node] = true
	}
	return run
}
