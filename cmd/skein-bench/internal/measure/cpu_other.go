//go:build !unix

package measure

import (
	"errors"
	"time"
)

// cpuTime is not known here.
func cpuTime() (time.Duration, error) {
	return 0, errors.New("the processor time of the bench is only known on unix")
}
