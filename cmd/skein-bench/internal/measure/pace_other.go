//go:build !linux

package measure

import "time"

// pause waits.
func pause(d time.Duration) { time.Sleep(d) }
