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

// runCLI runs a command that needs no service, and returns its exit code and all that it prints.
func runCLI(args ...string) (code int, output string) { return runCLIWith(nil, args...) }

// runCLIWith does the same with a command line that has more commands than [cli].
func runCLIWith(options []kong.Option, args ...string) (code int, output string) {
	var stdout, stderr bytes.Buffer
	code = run(args, &command.Streams{Out: &stdout, Err: &stderr}, options...)
	return code, stdout.String() + stderr.String()
}

// TestHelpCommandEqualsHelpFlag demands that `help COMMAND` prints the same as `COMMAND --help`,
// and that the flags of the command come before the flags of the connection.
func TestHelpCommandEqualsHelpFlag(t *testing.T) {
	for _, commandLine := range []string{"", "serve", "replay verify", "query feed"} {
		t.Run("help "+commandLine, func(t *testing.T) {
			words := strings.Fields(commandLine)
			code, helpOutput := runCLI(append([]string{"help"}, words...)...)
			if code != exitOK {
				t.Errorf("exit code: got %d, want %d", code, exitOK)
			}
			if want := "Usage: skein"; !strings.Contains(helpOutput, want) {
				t.Errorf("help: got\n%s\nwant %q in it", helpOutput, want)
			}
			_, flagOutput := runCLI(append(words, "--help")...)
			if diff := cmp.Diff(flagOutput, helpOutput); diff != "" {
				t.Errorf("help (-want as with --help +got):\n%s", diff)
			}
		})
	}

	_, page := runCLI("help", "query", "feed")
	ownFlag := strings.Index(page, "--hide-seen")
	connectionTitle := strings.Index(page, "Connection:")
	connectionFlag := strings.Index(page, "--tls-ca")
	if ownFlag < 0 || connectionTitle < ownFlag || connectionFlag < connectionTitle {
		t.Errorf("help query feed: got\n%s\nwant --hide-seen, then the title Connection, then --tls-ca", page)
	}
}

// TestHelpFitsOnOneScreen demands that the first page of help has one line for each command, in
// groups, with the most used commands first.
func TestHelpFitsOnOneScreen(t *testing.T) {
	_, page := runCLI("--help")
	lines := strings.Split(strings.TrimSpace(page), "\n")
	if len(lines) > 50 {
		t.Errorf("lines of help: got %d, want at most 50", len(lines))
	}

	// Each of these beginnings must occur in one line, in this order.
	want := []string{"Most used:", "  demo ", "  serve ", "Data in and out:", "  import ", "Administration:", "  replay ", "Other:", "Flags:"}
	var got []string
	for _, line := range lines {
		for _, beginning := range want {
			if strings.HasPrefix(line, beginning) {
				got = append(got, beginning)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("beginnings of lines (-want +got):\n%s\nof the page\n%s", diff, page)
	}

	_, replayPage := runCLI("replay", "--help")
	for _, want := range []string{"rebuild", "erase"} {
		if !strings.Contains(replayPage, want) {
			t.Errorf("replay --help: got\n%s\nwant the command %s in it", replayPage, want)
		}
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
			t.Errorf("describeAddress with the console %v: got %q, want %q", withConsole, got, want)
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
		t.Run(line, func(t *testing.T) {
			if got := strings.Join(normalizeArgs(strings.Fields(line)), " "); got != want {
				t.Errorf("normalizeArgs: got %q, want %q", got, want)
			}
		})
	}

	// The parser must accept such a command line too.
	if code, output := runCLI("serve", "--check", "--data", t.TempDir(), "--followee-cap", "-1"); code != exitOK {
		t.Errorf("serve --check --followee-cap -1: got exit code %d, want %d; output:\n%s", code, exitOK, output)
	}
}

// TestEveryCommandHasItsParts demands of every command all that the list of docs/development.md
// demands of a new one.
func TestEveryCommandHasItsParts(t *testing.T) {
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range missingParts(parser.Model, readExitCodesPage(t), readScripts(t)) {
		t.Error(missing)
	}
}

// TestCommandParsesWithItsOwnGrammar demands that the smaller grammar that parses a command has the
// command with all its subcommands and flags, and no other command.
func TestCommandParsesWithItsOwnGrammar(t *testing.T) {
	all, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range all.Model.Children {
		parser, err := kong.New(grammarFor([]string{want.Name, "word", "--flag"}))
		if err != nil {
			t.Fatalf("%s: %v", want.Name, err)
		}
		if diff := cmp.Diff(summarizeFlags(all.Model.Flags), summarizeFlags(parser.Model.Flags)); diff != "" {
			t.Errorf("%s: flags before the command (-want +got):\n%s", want.Name, diff)
		}

		var got []*kong.Node
		for _, child := range parser.Model.Children {
			// These commands also need the others.
			if child.Name == want.Name || want.Name != "completion" && want.Name != "config" {
				got = append(got, child)
			}
		}
		if diff := cmp.Diff(summarizeCommands([]*kong.Node{want}), summarizeCommands(got)); diff != "" {
			t.Errorf("%s: commands with their flags (-want +got):\n%s", want.Name, diff)
		}
	}
}

// TestConfigurationFileMayNameOtherCommands demands that a file with a section for another command
// than the one that runs is accepted, and that a misspelt section is not.
func TestConfigurationFileMayNameOtherCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skein.yaml")
	for name, tt := range map[string]struct {
		args string
		env  string // the environment's
	}{
		"flag":                    {args: "version --config " + file},
		"flag with its value":     {args: "version --config=" + file},
		"flag before the command": {args: "--config " + file + " version"},
		"environment":             {args: "version", env: file},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SKEIN_CONFIG", tt.env)
			for section, want := range map[string]int{"query": exitOK, "querry": exitUsage} {
				if err := os.WriteFile(file, []byte(section+": {check: {json: true}}\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if code, output := runCLI(strings.Fields(tt.args)...); code != want {
					t.Errorf("section %s: got exit code %d, want %d; output:\n%s", section, code, want, output)
				}
			}
		})
	}
}

// summarizeCommands returns a line for each command and flag below the nodes.
func summarizeCommands(nodes []*kong.Node) (lines []string) {
	for _, node := range nodes {
		path := strings.Join(commandPath(node), " ")
		lines = append(lines, path+": "+node.Help)
		for _, line := range summarizeFlags(node.Flags) {
			lines = append(lines, path+" "+line)
		}
		for _, arg := range node.Positional {
			lines = append(lines, path+" "+arg.Summary())
		}
		lines = append(lines, summarizeCommands(node.Children)...)
	}
	return lines
}

// summarizeFlags returns a line for each flag.
func summarizeFlags(flags []*kong.Flag) (lines []string) {
	for _, flag := range flags {
		lines = append(lines, strings.Join(append([]string{flag.String(), flag.Default, flag.Help}, flag.Envs...), " "))
	}
	return lines
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
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("scripts in testdata/script: got none, want some")
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

// missingParts returns what commands are without: help for them and their flags, a row in the table
// of exit codes, and a script that runs them. It also returns rows without a command.
func missingParts(model *kong.Application, page, scripts string) (missing []string) {
	hasRow := commandsWithExitCodes(page)
	hasScript := commandsRunByScripts(model.Node, scripts)
	for _, leaf := range model.Leaves(true) {
		name := strings.Join(commandPath(leaf), " ")
		if leaf.Help == "" {
			missing = append(missing, name+": no help")
		}
		for _, flag := range leaf.Flags {
			if flag.Help == "" {
				missing = append(missing, name+" --"+flag.Name+": no help")
			}
		}
		if !hasRow[name] {
			missing = append(missing, name+": no row among the exit codes of docs/cli.md")
		}
		if !hasScript[leaf] {
			missing = append(missing, name+": no script in testdata/script runs it")
		}
		delete(hasRow, name)
	}

	// Only rows without a command are left.
	for _, name := range slices.Sorted(maps.Keys(hasRow)) {
		missing = append(missing, name+": no command, but a row among the exit codes of docs/cli.md")
	}
	return missing
}

// commandName matches the name of a command in a cell of the table of exit codes.
var commandName = regexp.MustCompile("`([a-z -]+)`")

// commandsWithExitCodes returns the commands that the table of exit codes names.
func commandsWithExitCodes(page string) map[string]bool {
	_, section, _ := strings.Cut(page, "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")

	hasRow := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		row, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			continue
		}
		firstCell, _, _ := strings.Cut(row, " | ")
		for _, name := range commandName.FindAllStringSubmatch(firstCell, -1) {
			hasRow[name[1]] = true
		}
	}
	return hasRow
}

// scriptCommandLine matches a line of a script that runs skein, once with exec or repeatedly with
// until.
var scriptCommandLine = regexp.MustCompile(`(?m)^(?:! )?(?:exec skein|until (?:'[^']*'|\S+)) (.+)$`)

// commandsRunByScripts returns the commands that the scripts run.
func commandsRunByScripts(root *kong.Node, scripts string) map[*kong.Node]bool {
	hasScript := map[*kong.Node]bool{}
	for _, line := range scriptCommandLine.FindAllStringSubmatch(scripts, -1) {
		// Follow the words that name commands. The other ones are flags and arguments.
		node := root
		for word := range strings.FieldsSeq(line[1]) {
			isNamed := func(child *kong.Node) bool { return child.Name == word }
			if i := slices.IndexFunc(node.Children, isNamed); i >= 0 {
				node = node.Children[i]
			}
		}
		if node.DefaultCmd != nil {
			node = node.DefaultCmd
		}
		hasScript[node] = true
	}
	return hasScript
}
