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

	User string `arg:"" help:"Id of the user to erase, for good."`
	Yes  bool   `help:"Do not ask for confirmation. Scripts need this flag." env:"-"`
}

// Help is shown below the flags.
func (*eraseCmd) Help() string {
	return `An erasure cannot be undone: it removes the user from the stores, the log, the archive and the scheduled snapshots. On a terminal the
command asks you to type the id again; elsewhere it needs --yes. It fails if no event of the log names the user. Snapshots that you took by
hand are not changed, and the report names them.`
}

// Run erases a user, after a confirmation, and waits for the end.
func (c *eraseCmd) Run(ctx context.Context, std *command.Streams) error {
	if !c.Yes {
		terminal, ok := std.In.(*os.File)
		if !ok || !term.IsTerminal(int(terminal.Fd())) {
			return command.Usagef("an erasure cannot be undone: add --yes, or run the command on a terminal, where it asks for confirmation")
		}
		if err := confirmErasure(c.User, terminal, std.Err); err != nil {
			return err
		}
	}
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().EraseUser, &skeinv1.EraseUserRequest{UserId: c.User})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

// errNotConfirmed is the error of confirmErasure.
var errNotConfirmed = errors.New("that is not the id of the user: nothing was erased")

// confirmErasure asks a person to type the id of the user. It fails with errNotConfirmed if the person types anything else.
func confirmErasure(user string, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "This erases the user %s for good. Type the id again to continue: ", user)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r") != user {
		return errNotConfirmed
	}
	return nil
}
