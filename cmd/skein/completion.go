package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// completionCmd prints a few lines of shell code that ask the program itself for completions. So the completions always match this
// binary. There are libraries for kong, but they were last released in 2022.
type completionCmd struct {
	Bash  shellScriptCmd         `cmd:"" help:"For bash: put  source <(skein completion bash)  into ~/.bashrc."`
	Zsh   shellScriptCmd         `cmd:"" help:"For zsh: put  source <(skein completion zsh)  into ~/.zshrc, after compinit."`
	Fish  shellScriptCmd         `cmd:"" help:"For fish: put  skein completion fish | source  into ~/.config/fish/config.fish."`
	Words completeWordsCmd `cmd:"" hidden:"" help:"Completions of a command line; the shells call this." passthrough:""`
}

type shellScriptCmd struct{}

// Run prints the lines for the shell that the command is called after.
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
	Words []string `arg:"" optional:"" help:"The words after skein, the last one as far as it is typed."`
}

// Run prints the completions of the last word, one a line.
func (c *completeWordsCmd) Run(parsed *kong.Context, std *command.Streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	_, err := fmt.Fprintln(std.Out, strings.Join(complete(parsed.Model.Node, words), "\n"))
	return err
}

// complete follows the complete words through the grammar, and returns the completions of the last word.
func complete(node *kong.Node, words []string) (may []string) {
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	var wants *kong.Flag // the flag whose value comes next
	for _, word := range words {
		name, _, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		switch {
		case wants != nil:
			wants = nil
		case strings.HasPrefix(word, "--"):
			if f := findFlag(node, name); f != nil && !f.IsBool() && !given {
				wants = f
			}
		default:
			if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
				node = node.Children[i]
			}
		}
	}
	switch {
	case wants != nil:
		may = slices.Clone(wants.EnumSlice())
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				may = append(may, "--"+f.Name)
			}
		}
	default:
		for _, n := range node.Children {
			if !n.Hidden {
				may = append(may, n.Name)
			}
		}
	}
	may = slices.DeleteFunc(may, func(w string) bool { return w == "" || !strings.HasPrefix(w, last) })
	slices.Sort(may)
	return slices.Compact(may)
}

// flagOf returns the flag of a node or of one of its ancestors; nil means there is none.
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
