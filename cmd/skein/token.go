package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/gateway/access"
)

// tokenCmd has the commands for tokens, by which callers prove who they are.
type tokenCmd struct {
	New newTokenCmd `cmd:"" help:"Make a token and its line in the token file. The token is printed only once."`
}

type newTokenCmd struct {
	Name    string        `help:"Name of the token's owner, for people and logs." required:"" placeholder:"NAME"`
	Role    []string      `help:"Role of the token: publish, read, offline or admin; repeat for several." required:"" placeholder:"ROLE"`
	User    string        `help:"Bind the token to this user: it can publish and read only what is this user's." placeholder:"ID"`
	Expires time.Duration `help:"The token expires after this time; 0 means never." default:"0"`
	Tokens  string        `help:"Append the line to this token file, which is created if it does not exist." type:"path" placeholder:"FILE"`
	Out     string        `help:"Write the token to this new file, which only its owner can read, instead of printing it." type:"path" placeholder:"FILE"`
	JSON    bool          `help:"Print the token and the line as JSON."`
}

// Help is shown below the flags.
func (*newTokenCmd) Help() string {
	return `The token itself is written only to standard output or to --out: the line in the token file has its hash. skein serve --tokens FILE
reads the file again when it changes. To revoke a token, remove its line.`
}

// Run makes a token.
func (c *newTokenCmd) Run(std *command.Streams) error {
	roles, err := access.ParseRoles(strings.Join(c.Role, ","))
	if err != nil {
		return command.Usagef("--role: %w", err)
	}
	if c.Expires < 0 {
		return command.Usagef("--expires must not be negative")
	}
	if c.Out != "" && c.JSON {
		return command.Usagef("--out and --json exclude each other: the token is written to one place only")
	}

	var expires time.Time
	if c.Expires > 0 {
		expires = time.Now().Add(c.Expires)
	}
	token, line, err := access.NewToken(access.Caller{Name: c.Name, Roles: roles, User: c.User}, expires)
	if err != nil {
		return command.Usagef("--name, --user: %w", err)
	}

	if c.Out != "" {
		if err := createPrivateFile(c.Out, token+"\n"); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if c.Tokens != "" {
		if err := appendLine(c.Tokens, line); err != nil {
			return fmt.Errorf("--tokens: %w", err)
		}
	}

	if c.JSON {
		return json.NewEncoder(std.Out).Encode(struct {
			Token string `json:"token"`
			Line  string `json:"line"`
		}{token, line})
	}
	if c.Tokens == "" {
		std.Sayf("The line for the file of skein serve --tokens FILE:\n%s", line)
	}
	if c.Out != "" {
		std.Sayf("The token is in %s.", c.Out)
		return nil
	}
	if c.Tokens == "" {
		std.Sayf("The token, which is not shown again:")
	}
	_, err = fmt.Fprintln(std.Out, token)
	return err
}

// createPrivateFile creates a file that only its owner can read, and returns an error if it exists.
func createPrivateFile(file, text string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// appendLine appends a line to a file and syncs it.
func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}

	// If the file does not end with a newline, the new line would become part of the last one.
	if last := make([]byte, 1); info.Size() > 0 {
		if _, err := f.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	return f.Sync()
}
