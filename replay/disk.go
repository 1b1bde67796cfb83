package replay

import (
	"errors"
	"fmt"
	"math"

	"github.com/skein-feed/skein/events"
)

// ErrDisk means that there is less free disk than the work takes, or than must stay free beside it. It is returned wrapped, with both
// figures.
var ErrDisk = errors.New("not enough disk")

// DiskPeriod is the number of bytes of the log that a build reads between two checks of the free disk.
const DiskPeriod = 256 << 20

// spare is the size of a store while it is built, as a multiple of its size in the end.
const spare = 1.3

// Room returns the bytes of disk that a store of this final size, in bytes, takes while it is built.
func Room(store uint64) uint64 { return uint64(math.Ceil(float64(store) * spare)) }

// CheckRoom returns [ErrDisk] if fewer than need bytes are free. something names the work in the error, as in "a shadow of graph".
func CheckRoom(something string, need, free uint64) error {
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w: for %s %s are needed, %s are free", ErrDisk, something, events.FormatSize(need), events.FormatSize(free))
}

// CheckFree returns [ErrDisk] if fewer than margin bytes are free.
func CheckFree(margin, free uint64) error {
	if free >= margin {
		return nil
	}
	return fmt.Errorf("%w: %s are left, %s must stay free", ErrDisk, events.FormatSize(free), events.FormatSize(margin))
}
