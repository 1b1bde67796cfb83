package command

import (
	"bytes"
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

// PrintAtOnce has a command print into memory, and then writes to Out in one piece what it has printed, also if it has failed. Readers such as
// head and grep -q end before they have read everything. A command that still writes then is killed by SIGPIPE, which a shell with pipefail
// takes for a failure.
func (s *Streams) PrintAtOnce(printTo func(*Streams) error) error {
	var text bytes.Buffer
	failure := printTo(&Streams{In: s.In, Out: &text, Err: s.Err})
	_, err := s.Out.Write(text.Bytes())
	return errors.Join(failure, err)
}

// UsageError is an error of usage that the parser cannot find.
type UsageError struct{ error }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrSilent ends a command with exit code 1, without another message.
var ErrSilent = errors.New("failed")
