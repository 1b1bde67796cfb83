package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
)

// configCmd shows the configuration with which serve would run. It has the flags of serve, and
// reads the part of the configuration file for serve.
type configCmd struct {
	serveCmd `embed:""`

	Reference bool `help:"Print every flag of every command instead, with its environment variable and its default, in Markdown." env:"-"`
}

// Help is shown below the flags.
func (*configCmd) Help() string {
	return `Reads the flags, the environment and the configuration file as serve does, and prints the value of every flag of serve with the
origin of the value. The output can serve as a configuration file, but passwords in URLs are replaced by "hidden". The command opens and changes
nothing else, so it does not find errors in the files that flags name.`
}

// Run prints the configuration.
func (c *configCmd) Run(parsed *kong.Context, std *command.Streams) error {
	if c.Reference {
		_, err := fmt.Fprint(std.Out, referencePage(parsed.Model))
		return err
	}
	if _, err := c.Settings(); err != nil {
		return err
	}
	if c.Listen == "" {
		c.Listen = defaultListen
	}

	node := &yaml.Node{Kind: yaml.MappingNode}
	origins := valueOrigins(parsed)
	for _, f := range parsed.Selected().Flags {
		if f.Name == "reference" || f.Name == "help" {
			continue
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}
		value := &yaml.Node{}
		if err := value.Encode(displayValue(f.Target)); err != nil {
			return err
		}
		value.LineComment = origins[f.Name]
		node.Content = append(node.Content, key, value)
	}
	return std.PrintAtOnce(func(std *command.Streams) error {
		out := yaml.NewEncoder(std.Out)
		out.SetIndent(2)
		if err := out.Encode(map[string]*yaml.Node{"serve": node}); err != nil {
			return err
		}
		return out.Close()
	})
}

// valueOrigins returns the origin of each flag's value: the command line, an environment variable,
// the configuration file or the default.
func valueOrigins(parsed *kong.Context) map[string]string {
	origins := map[string]string{}
	for _, f := range parsed.Selected().Flags {
		origins[f.Name] = "default"
		for _, env := range slices.Backward(f.Envs) { // the first variable that is set wins
			if _, set := os.LookupEnv(env); set {
				origins[f.Name] = env
			}
		}
	}

	// The path has the flags that the command line or the file sets. A flag of which the
	// environment has a value is not read from the file.
	for _, element := range parsed.Path {
		switch {
		case element.Flag == nil: // a command or an argument
		case element.Resolved:
			origins[element.Flag.Name] = "configuration file"
		default:
			origins[element.Flag.Name] = "command line"
		}
	}
	return origins
}

// displayValue returns a value in the form of the file: numbers and booleans as such, all others as
// text without secrets.
func displayValue(v reflect.Value) any {
	switch value := v.Interface().(type) {
	case bool, int, uint32, int64, float64, []string:
		return value
	default:
		return hideSecrets(fmt.Sprint(value))
	}
}

var (
	// userInfo has the credentials in a URL: a name and a password, or a token.
	userInfo = regexp.MustCompile(`://([^/@,:]*:)?[^/@,]*@`)
	// secretParameter matches a parameter of a URL whose name sounds like a secret.
	secretParameter = regexp.MustCompile(`(?i)([?&][^=&]*(?:secret|password|token|key)[^=&]*=)[^&,]*`)
)

// hideSecrets replaces the secrets in a value.
func hideSecrets(value string) string {
	return secretParameter.ReplaceAllString(userInfo.ReplaceAllString(value, "://${1}hidden@"), "${1}hidden")
}

// referencePage returns docs/configuration.md: a table of the flags of each command.
func referencePage(model *kong.Application) string {
	var out strings.Builder
	out.WriteString(referenceIntroduction)
	writeCommandReference(&out, model.Node, nil, "every command")
	for _, leaf := range model.Leaves(true) {
		writeCommandReference(&out, leaf, commandPath(leaf), "skein "+strings.Join(commandPath(leaf), " "))
	}
	return out.String()
}

const referenceIntroduction = `# Configuration reference

Generated from the code by ` + "`task generate`" + `; edit the flags, not this file. Their purpose, and examples, are in
[cli.md](cli.md).

A flag has the value of the command line, else that of the environment, else that of the configuration file (` + "`--config FILE`" + ` or
` + "`SKEIN_CONFIG`" + `), else the default. In the file, a flag at the top is for every command that has the flag; a flag under the name of a
command is for that command. ` + "`skein config`" + ` prints the values that ` + "`serve`" + ` would use, and the origin of each.
`

// writeCommandReference writes the section of one command. The flags of commands that call a
// service are written once, in the section of clientCommand, to which the other sections refer.
func writeCommandReference(out *strings.Builder, node *kong.Node, path []string, title string) {
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if len(path) > 0 && node.Help != "" {
		fmt.Fprintf(out, "%s\n\n", node.Help)
	}
	if len(path) > 0 && path[0] == "config" {
		out.WriteString("It has the flags of `skein serve`, and `--reference`, which prints this page.\n")
		return
	}

	// A command has its own flags and those of the commands above it. Those of the program are in a
	// section of their own.
	var flags []*kong.Flag
	refersToClient := findFlag(node, "server") != nil && node.Name != clientCommand
	for ancestor := node; ancestor != nil && (ancestor == node || ancestor.Type == kong.CommandNode); ancestor = ancestor.Parent {
		for _, f := range ancestor.Flags {
			if !f.Hidden && f.Name != "help" && (!refersToClient || !isClientFlag(f)) {
				flags = append(flags, f)
			}
		}
	}

	if refersToClient {
		fmt.Fprintf(out, "It calls a service, and has the flags of [`skein %s`](#skein-%s) for that.\n\n", clientCommand, clientCommand)
	}
	if len(flags) == 0 {
		out.WriteString("It has no other flags.\n")
		return
	}
	out.WriteString("| flag | environment | default | |\n|---|---|---|---|\n")
	for _, f := range flags {
		value := strings.ReplaceAll(f.Default, "|", `\|`)
		if value != "" {
			value = "`" + value + "`"
		}
		env := "`" + strings.Join(f.Envs, "`, `") + "`"
		if len(f.Envs) == 0 {
			env = "none"
		}
		fmt.Fprintf(out, "| `--%s%s` | %s | %s | %s |\n", f.Name, placeholder(f), env, value,
			strings.NewReplacer("|", `\|`, "\n", " ").Replace(f.Help))
	}
}

// clientCommand is the command in whose section the reference lists the flags that all commands
// have that call a service.
const clientCommand = "healthcheck"

// isClientFlag reports whether a flag is one of [command.ClientFlags].
func isClientFlag(f *kong.Flag) bool {
	return slices.Contains([]string{"server", "timeout", "token-file", "token-in-clear", "tls-ca", "client-cert", "client-key"}, f.Name)
}

// placeholder returns the placeholder for the value of a flag in the reference.
func placeholder(f *kong.Flag) string {
	switch {
	case f.IsBool():
		return ""
	case f.Enum != "":
		return " " + strings.ReplaceAll(f.Enum, ",", `\|`)
	case f.PlaceHolder != "":
		return " " + strings.ReplaceAll(f.PlaceHolder, "|", `\|`)
	}
	switch f.Target.Interface().(type) {
	case time.Duration:
		return " TIME"
	case flags.ByteSize, memorySetting:
		return " SIZE"
	case float64:
		return " NUMBER"
	case string, []string:
		return " TEXT"
	}
	return " N"
}
