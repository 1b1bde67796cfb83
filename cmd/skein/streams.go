package main

import (
	"errors"
	"fmt"
	"io"
)

// streams are the standard streams. Data goes to out, everything for people to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

func (s *streams) say(format string, args ...any) { fmt.Fprintf(s.err, format+"\n", args...) }

// usageError is an error in how the command was called that the parser could not know.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errSilent ends a command with an exit code, after everything was said.
var errSilent = errors.New("failed")
