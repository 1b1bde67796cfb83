package replaycmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type eraseCmd struct {
	startFlags `embed:""`

	Users []string `arg:"" name:"user" optional:"" help:"Ids of the users to erase."`
	File  string   `help:"File with more ids, one per line; - reads standard input." placeholder:"FILE" env:"-"`
	Yes   bool     `help:"Do not ask for confirmation. Scripts need this flag." env:"-"`
}

// Help is shown below the flags.
func (*eraseCmd) Help() string {
	return `An erasure cannot be undone: it removes the users from the stores, the log, the archive and the scheduled snapshots. On a terminal the
command asks you to type the id of the user again, or the number of users if there are several. Without a terminal it needs --yes. The
erasure fails if no event of the log names any of the users. Otherwise the report lists the users whom no event names, and the snapshots
that you took by hand, which still contain the users. To erase up to 10000 users takes hardly longer than to erase one.`
}

// Run asks for a confirmation, unless --yes is given, and then starts the erasure of the users.
// Unless --no-wait is given, Run waits for the end of the erasure.
func (c *eraseCmd) Run(ctx context.Context, std *command.Streams) error {
	users, err := c.readUsers(std)
	if err != nil {
		return err
	}

	if !c.Yes {
		terminal, ok := std.In.(*os.File)
		if !ok || !term.IsTerminal(int(terminal.Fd())) {
			return command.Usagef("an erasure cannot be undone: add --yes, or run the command on a terminal, where it asks for confirmation")
		}
		if err := confirmErasure(users, terminal, std.Err); err != nil {
			return err
		}
	}

	return startOperation(ctx, &c.startFlags, std, c.Client().Admin().EraseUser, &skeinv1.EraseUserRequest{UserIds: users})
}

// readUsers returns the ids of the users: those of the arguments, followed by those of --file, one
// per line.
func (c *eraseCmd) readUsers(std *command.Streams) (users []string, err error) {
	users = slices.Clone(c.Users)
	switch {
	case c.File == "" && len(users) == 0:
		return nil, command.Usagef("name the users to erase, or give a --file of them")
	case c.File == "":
		return users, nil
	case c.File == "-" && !c.Yes:
		return nil, command.Usagef("--file - reads the users from standard input, so the command cannot ask there: add --yes")
	}

	in := std.In
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if line := strings.TrimSuffix(lines.Text(), "\r"); line != "" {
			users = append(users, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if len(users) == 0 {
		return nil, command.Usagef("--file: there are no users in %s", c.File)
	}
	return users, nil
}

// errNotConfirmed means that a person typed anything but what confirmErasure asked for.
var errNotConfirmed = errors.New("the text that you typed is not the one that was asked for: nothing was erased")

// confirmErasure asks a person to type the id of the user again, or the number of several users. It
// fails with errNotConfirmed if the person types anything else.
func confirmErasure(users []string, in io.Reader, out io.Writer) error {
	want := users[0]
	if len(users) == 1 {
		fmt.Fprintf(out, "This erases the user %s for good. Type the id again to continue: ", want)
	} else {
		want = strconv.Itoa(len(users))
		fmt.Fprintf(out, "This erases %s users for good. Type their number to continue: ", want)
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r") != want {
		return errNotConfirmed
	}
	return nil
}
