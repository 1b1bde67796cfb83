package verify

import (
	"errors"
	"fmt"
	"math"
)

// ErrDisk means that there is less free disk than a shadow takes. It arrives wrapped, with both figures.
var ErrDisk = errors.New("verify: not enough disk")

const (
	// spare is how much more a shadow may take while it is folded than the store that it is a shadow of.
	spare = 1.3
	// diskPeriod is how much of the log, in bytes, is folded between two looks at the free disk.
	diskPeriod = 256 << 20
)

// checkDisk refuses a shadow that would fill the disk. What an earlier one has left is removed by then.
func (o *Options) checkDisk() error {
	if o.Disk == nil {
		return nil
	}
	store, free, err := o.Disk()
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	if need := uint64(math.Ceil(float64(store)*spare)) + o.Margin; free < need {
		return fmt.Errorf("%w: for a shadow of %s %s are needed, %s are free", ErrDisk, o.Projection.Name(), sizeText(need), sizeText(free))
	}
	return nil
}

// checkFree stops a shadow that would take the last of the disk from what serves.
func (o *Options) checkFree() error {
	if o.Disk == nil {
		return nil
	}
	_, free, err := o.Disk()
	if err == nil && free < o.Margin {
		err = fmt.Errorf("%w: %s are left, %s must stay free", ErrDisk, sizeText(free), sizeText(o.Margin))
	}
	return err
}

func sizeText(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
