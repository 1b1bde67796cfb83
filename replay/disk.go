package replay

import (
	"errors"
	"fmt"
	"math"

	"github.com/skein-feed/skein/events"
)

// ErrDisk means that there is less free disk than work takes, or than must stay free beside it. It arrives wrapped, with both
// figures.
var ErrDisk = errors.New("not enough disk")

// DiskPeriod is how much of the log, in bytes, is folded into a store that is built between two looks at the free disk.
const DiskPeriod = 256 << 20

// spare is how much more a store may take while it is built than it takes in the end.
const spare = 1.3

// Room returns what a store of so many bytes takes while it is built.
func Room(store uint64) uint64 { return uint64(math.Ceil(float64(store) * spare)) }

// CheckRoom fails with [ErrDisk] unless so many bytes are free as something needs, as in "a shadow of graph".
func CheckRoom(something string, need, free uint64) error {
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w: for %s %s are needed, %s are free", ErrDisk, something, events.SizeText(need), events.SizeText(free))
}

// CheckFree fails with [ErrDisk] unless so many bytes are free as must stay so.
func CheckFree(margin, free uint64) error {
	if free >= margin {
		return nil
	}
	return fmt.Errorf("%w: %s are left, %s must stay free", ErrDisk, events.SizeText(free), events.SizeText(margin))
}
