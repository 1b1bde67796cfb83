package measure

import (
	"syscall"
	"time"
)

// pause waits as exactly as the system can. The timers of the Go runtime are late by up to a
// millisecond in an idle process, which is more than most calls take.
func pause(d time.Duration) {
	wait := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&wait, nil) // a signal may end the wait early, so the caller looks at the clock
}
