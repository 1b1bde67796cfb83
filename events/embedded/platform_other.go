//go:build !darwin && !dragonfly && !freebsd && !linux && !windows

package embedded

import (
	"errors"
	"os"
)

var errLockHeld = errors.New("held by another process")

// lockDir cannot lock here: an embedded log is refused, an external one needs no lock.
func lockDir(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func unlockDir(f *os.File) error { return f.Close() }

func freeBytes(string) (uint64, error) { return 0, errors.ErrUnsupported }
