package command

import (
	"errors"
	"fmt"
	"io"
)

// Streams are the standard streams. Data goes to Out, everything for people to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Sayf tells people something, in a line.
func (s *Streams) Sayf(format string, args ...any) { fmt.Fprintf(s.Err, format+"\n", args...) }

// UsageError is an error in how the command was called that the parser could not know.
type UsageError struct{ error }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrSilent ends a command with an exit code, after everything was said.
var ErrSilent = errors.New("failed")
