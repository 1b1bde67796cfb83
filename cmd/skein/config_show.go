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

// configCmd shows the configuration with which serve would run. It has the flags of serve, and reads the part of the configuration file for
// serve.
type configCmd struct {
	serveCmd `embed:""`

	Reference bool `help:"Print instead every flag of every command, with its variable and default, as Markdown." env:"-"`
}

// Help is shown below the flags.
func (*configCmd) Help() string {
	return `Takes the flags of serve, its environment and its configuration file, and prints what comes out of them, with where each value
is from. The output is a configuration file. Passwords in URLs are hidden: put them in again. Nothing is opened or changed: values are
checked only as far as they can be without files.`
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
	from := valueOrigins(parsed)
	for _, f := range parsed.Selected().Flags {
		if f.Name == "reference" || f.Name == "help" {
			continue
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}
		value := &yaml.Node{}
		if err := value.Encode(displayValue(f.Target)); err != nil {
			return err
		}
		value.LineComment = from[f.Name]
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

// origins returns the origin of each flag's value: command line, environment, file or default.
func valueOrigins(parsed *kong.Context) map[string]string {
	from := map[string]string{}
	for _, f := range parsed.Selected().Flags {
		from[f.Name] = "default"
		for _, env := range slices.Backward(f.Envs) {
			if _, set := os.LookupEnv(env); set {
				from[f.Name] = env
			}
		}
	}
	for _, p := range parsed.Path {
		switch {
		case p.Flag == nil:
		case p.Resolved:
			from[p.Flag.Name] = "configuration file"
		default:
			from[p.Flag.Name] = "command line"
		}
	}
	return from
}

// displayValue returns a value in the form of the file: numbers and booleans as such, all others as text without secrets.
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

// hide replaces the secrets in a value.
func hideSecrets(value string) string {
	return secretParameter.ReplaceAllString(userInfo.ReplaceAllString(value, "://${1}hidden@"), "${1}hidden")
}

// reference returns tables of the flags of each command, for docs/configuration.md.
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

A value is taken from the command line, else from the environment, else from the configuration file (` + "`--config FILE`" + ` or
` + "`SKEIN_CONFIG`" + `), where a flag stands by its name at the top, for every command that has it, or under the name of a command; else
it is the default. ` + "`skein config`" + ` prints what comes out for ` + "`serve`" + `, and from where.
`

func writeCommandReference(out *strings.Builder, node *kong.Node, path []string, title string) {
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if len(path) > 0 && node.Help != "" {
		fmt.Fprintf(out, "%s\n\n", node.Help)
	}
	if len(path) > 0 && path[0] == "config" {
		out.WriteString("The flags of `skein serve`, and `--reference`, which prints this page.\n")
		return
	}
	var flags []*kong.Flag
	asks := findFlag(node, "server") != nil && node.Name != clientCommand
	for up := node; up != nil && (up == node || up.Type == kong.CommandNode); up = up.Parent {
		for _, f := range up.Flags {
			if !f.Hidden && f.Name != "help" && (!asks || !isClientFlag(f)) {
				flags = append(flags, f)
			}
		}
	}
	if asks {
		fmt.Fprintf(out, "It talks to a service, with the flags of [`skein %s`](#skein-%s) but `--alive`.\n\n", clientCommand, clientCommand)
	}
	if len(flags) == 0 {
		out.WriteString("No flags of its own.\n")
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

// clientCommand is the command under which the reference lists the flags of all commands that call a service.
const clientCommand = "healthcheck"

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
