package replay

import (
	"errors"
	"fmt"
	"math"

	"github.com/skein-feed/skein/events"
)

// ErrDisk means that an operation needs more disk than is free, or that it has left less than must
// stay free for the service. It is returned wrapped, in an error that contains both sizes.
var ErrDisk = errors.New("not enough disk")

// DiskPeriod is how many bytes of the log a build reads between two checks of the free disk.
const DiskPeriod = 256 << 20

// peakToFinalSize is how much disk a store takes while it is built, as a multiple of its final
// size.
const peakToFinalSize = 1.3

// BuildSpace returns how many bytes of disk a store takes while it is built, if its final size in
// bytes is store.
func BuildSpace(store uint64) uint64 {
	return uint64(math.Ceil(float64(store) * peakToFinalSize))
}

// CheckSpace returns [ErrDisk] if fewer than need bytes are free. something names the operation or
// its result in the error, as in "a shadow of graph".
func CheckSpace(something string, need, free uint64) error {
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w: for %s %s are needed, %s are free", ErrDisk, something, events.FormatSize(need), events.FormatSize(free))
}

// CheckFree returns [ErrDisk] if free, the number of free bytes, is below margin.
func CheckFree(margin, free uint64) error {
	if free >= margin {
		return nil
	}
	return fmt.Errorf("%w: %s are left, %s must stay free", ErrDisk, events.FormatSize(free), events.FormatSize(margin))
}
