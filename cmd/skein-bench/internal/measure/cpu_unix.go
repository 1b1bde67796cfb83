//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time that this process has used, by all of its threads.
func CPUTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
