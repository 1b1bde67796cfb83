//go:build !linux

package bench

import "time"

// pause waits.
func pause(d time.Duration) { time.Sleep(d) }
