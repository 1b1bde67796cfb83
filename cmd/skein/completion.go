package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// completionCmd prints a few lines of shell code that ask the program itself for completions, so
// that they always match this binary. Libraries that do this for kong exist, but were last released
// in 2022.
type completionCmd struct {
	Bash  shellScriptCmd   `cmd:"" help:"For bash: put  source <(skein completion bash)  into ~/.bashrc."`
	Zsh   shellScriptCmd   `cmd:"" help:"For zsh: put  source <(skein completion zsh)  into ~/.zshrc, after compinit."`
	Fish  shellScriptCmd   `cmd:"" help:"For fish: put  skein completion fish | source  into ~/.config/fish/config.fish."`
	Words completeWordsCmd `cmd:"" hidden:"" help:"Print the completions of a command line. The shell code calls this." passthrough:""`
}

type shellScriptCmd struct{}

// Run prints the code for a shell, which has the name of the command.
func (*shellScriptCmd) Run(parsed *kong.Context, std *command.Streams) error {
	_, err := fmt.Fprint(std.Out, shellScripts[parsed.Selected().Name])
	return err
}

var shellScripts = map[string]string{
	"bash": `_skein() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(skein completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _skein skein
`,
	"zsh": `_skein() {
  local -a words_there
  words_there=("${(@f)$(skein completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${words_there[1]}" ]]; then compadd -- "${words_there[@]}"; else _files; fi
}
compdef _skein skein
`,
	"fish": `complete -c skein -a '(skein completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

type completeWordsCmd struct {
	Words []string `arg:"" optional:"" help:"The words after skein. The last one is the one to complete, and may be empty."`
}

// Run prints the completions of the last word, one per line.
func (c *completeWordsCmd) Run(parsed *kong.Context, std *command.Streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	_, err := fmt.Fprintln(std.Out, strings.Join(complete(parsed.Model.Node, words), "\n"))
	return err
}

// complete follows all words but the last through the grammar, and returns the completions of the
// last word.
func complete(node *kong.Node, words []string) []string {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}

	var valueOf *kong.Flag // the flag whose value is the next word; nil means that the next word is none
	for _, word := range words {
		switch {
		case valueOf != nil:
			valueOf = nil
		case strings.HasPrefix(word, "--"):
			name, _, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if f := findFlag(node, name); f != nil && !f.IsBool() && !hasValue {
				valueOf = f
			}
		default:
			child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
			if child >= 0 {
				node = node.Children[child]
			}
		}
	}

	var completions []string
	switch {
	case valueOf != nil:
		completions = slices.Clone(valueOf.EnumSlice())
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				completions = append(completions, "--"+f.Name)
			}
		}
	default:
		for _, n := range node.Children {
			if !n.Hidden {
				completions = append(completions, n.Name)
			}
		}
	}
	completions = slices.DeleteFunc(completions, func(w string) bool { return w == "" || !strings.HasPrefix(w, last) })
	slices.Sort(completions)
	return slices.Compact(completions)
}

// findFlag returns the flag of a node or of one of its ancestors; nil means that there is none.
func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}
