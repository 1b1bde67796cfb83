package replaycmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type eraseCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	User string `arg:"" help:"The user to erase, for good."`
	Yes  bool   `help:"Erase without asking, as a script must." env:"-"`
}

// Help is shown below the flags.
func (*eraseCmd) Help() string {
	return `It cannot be undone: the stores, the archive, the log and scheduled snapshots no longer have the user. In a terminal the command
asks for the id again; elsewhere it needs --yes. A user whom no event of the log names is refused. Snapshots that were taken
by hand stay, and the report names them.`
}

// Run starts the erasure of a user and waits for its end.
func (c *eraseCmd) Run(ctx context.Context, std *command.Streams) error {
	if !c.Yes {
		in, ok := std.In.(*os.File)
		if !ok || !term.IsTerminal(int(in.Fd())) {
			return command.Usagef("an erasure cannot be undone: add --yes, or run the command in a terminal, where it asks")
		}
		if err := confirmErasure(c.User, in, std.Err); err != nil {
			return err
		}
	}
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().EraseUser, &skeinv1.EraseUserRequest{UserId: c.User})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

var errNotConfirmed = errors.New("that is not the id of the user: nothing was erased")

// confirmErasure asks a person to type the id of the user again. It returns an error unless the person does.
func confirmErasure(user string, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "This erases the user %s for good. Type the id again to go on: ", user)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r") != user {
		return errNotConfirmed
	}
	return nil
}
