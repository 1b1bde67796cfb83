package measure

import (
	"syscall"
	"time"
)

// pause waits as exactly as the system can. The timers of the runtime are late by up to a millisecond where nothing else
// continues, which is more than most calls take.
func pause(d time.Duration) {
	wait := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&wait, nil) // cut short by a signal: the caller looks at the clock
}
