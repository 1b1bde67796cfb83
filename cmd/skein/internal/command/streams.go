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

// Sayf prints a line for people, to Err.
func (s *Streams) Sayf(format string, args ...any) { fmt.Fprintf(s.Err, format+"\n", args...) }

// UsageError is an error of usage that the parser cannot find.
type UsageError struct{ error }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrSilent ends a command with exit code 1, without another message.
var ErrSilent = errors.New("failed")
