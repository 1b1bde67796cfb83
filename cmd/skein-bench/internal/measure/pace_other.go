//go:build !linux

package measure

import "time"

// pause waits for d, as exactly as the Go runtime can.
func pause(d time.Duration) { time.Sleep(d) }
