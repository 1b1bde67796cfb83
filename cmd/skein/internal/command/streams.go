package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Streams are the standard streams of a command. A command writes data to Out, and everything else
// that people read to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Sayf prints a line for people, to Err.
func (s *Streams) Sayf(format string, args ...any) { fmt.Fprintf(s.Err, format+"\n", args...) }

// PrintAtOnce calls printTo with streams whose Out is in memory, and then writes what was printed
// to Out in one piece, even if printTo has failed. The reader of a pipe, such as head or grep -q,
// may end before it has read everything. SIGPIPE would then kill a command that still writes, and a
// shell with pipefail would take that for a failure.
func (s *Streams) PrintAtOnce(printTo func(*Streams) error) error {
	var text bytes.Buffer
	printErr := printTo(&Streams{In: s.In, Out: &text, Err: s.Err})
	_, err := s.Out.Write(text.Bytes())
	return errors.Join(printErr, err)
}

// UsageError is an error in the arguments of a command that the parser cannot find. The command has
// done nothing.
type UsageError struct{ error }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrSilent ends a command with exit code 1 and without a message, because the command has already
// printed what failed.
var ErrSilent = errors.New("failed")
