package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// configFile gives flags the values of a configuration file in YAML, or JSON, which is a subset:
//
//	log-level: debug        # for every command that has the flag
//	serve:
//	  listen: 127.0.0.1:80  # for this command only
//	query:
//	  check: {json: true}
//
// A name that is not a flag or command is an error, because it is probably misspelt. So is a flag
// that has no environment variable: it is only for the command line ([mayBeInFile]).
type configFile struct {
	// flag is the name of the flag with the path.
	flag   string
	loaded bool
	values map[string]any
}

// Validate is part of kong.Resolver. It is called before the path is known; Resolve checks the
// names.
func (*configFile) Validate(*kong.Application) error { return nil }

// Resolve is part of kong.Resolver.
func (c *configFile) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	// The file may have the name of this flag at the top, for other commands.
	if !mayBeInFile(flag) {
		return nil, nil
	}
	// In kong, resolvers win over the environment. A user who sets a variable for one run expects
	// it to win over the file.
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}

	// The value under the innermost command wins, as under query check: before that under query,
	// and before that at the top.
	for node := ctx.Selected(); node != nil; node = node.Parent {
		if node.Type != kong.CommandNode {
			continue
		}
		path := commandPath(node)
		if path[0] == "config" {
			path = []string{"serve"} // config shows the configuration of serve
		}
		section := c.values
		for _, name := range path {
			section, _ = section[name].(map[string]any)
		}
		if value, ok := section[flag.Name]; ok {
			return formatValue(value), nil
		}
	}
	return formatValue(c.values[flag.Name]), nil
}

// commandPath returns the names of a command and its ancestors, the outermost first.
func commandPath(node *kong.Node) []string {
	var path []string
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		path = append(path, node.Name)
	}
	slices.Reverse(path)
	return path
}

// formatValue returns a value of the file in the form that it has on the command line.
func formatValue(v any) any {
	switch v := v.(type) {
	case nil, bool, string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}

// load reads the file once.
func (c *configFile) load(ctx *kong.Context) error {
	if c.loaded {
		return nil
	}
	c.loaded = true

	var path string
	for _, flag := range ctx.Model.Flags {
		if flag.Name == c.flag {
			path, _ = ctx.FlagValue(flag).(string)
		}
	}
	if path == "" {
		return nil
	}

	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, &c.values); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := checkNames(ctx.Model.Node, c.values, nil); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// mayBeInFile reports whether the file may set a flag. The flags that it may not set have no
// environment variable either: they are for a single call, such as --yes, which skips a question.
func mayBeInFile(f *kong.Flag) bool { return len(f.Envs) > 0 }

// checkNames returns an error for a name in the section of a command that is neither a subcommand
// nor a flag that the file may set. The section of a command may also have flags of its ancestors
// and of its subcommands. path has the names of the command and its ancestors.
func checkNames(node *kong.Node, section map[string]any, path []string) error {
	var errs []error
	for name, value := range section {
		childPath := append(slices.Clone(path), name)
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		childSection, isSection := value.(map[string]any)
		flag := findFlag(node, name)
		isSetting := flag != nil && mayBeInFile(flag) || hasSettingBelow(node, name)
		switch {
		case child >= 0 && isSection:
			errs = append(errs, checkNames(node.Children[child], childSection, childPath))
		case !isSetting:
			errs = append(errs, fmt.Errorf("there is no flag or command %q that a file may set", strings.Join(childPath, ".")))
		}
	}
	return errors.Join(errs...)
}

// hasSettingBelow reports whether a descendant of a node has a flag that the file may set.
func hasSettingBelow(node *kong.Node, name string) bool {
	return slices.ContainsFunc(node.Children, func(child *kong.Node) bool {
		isSetting := func(f *kong.Flag) bool { return f.Name == name && mayBeInFile(f) }
		return slices.ContainsFunc(child.Flags, isSetting) || hasSettingBelow(child, name)
	})
}
