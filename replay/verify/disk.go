package verify

import (
	"fmt"

	"github.com/skein-feed/skein/replay"
)

// checkDisk refuses a shadow that would fill the disk, and returns what the live store takes, 0 if nobody looks. What an earlier
// shadow has left is removed by then.
func (o *Options) checkDisk() (store uint64, err error) {
	if o.Disk == nil {
		return 0, nil
	}
	store, free, err := o.Disk()
	if err != nil {
		return 0, fmt.Errorf("free disk: %w", err)
	}
	return store, replay.CheckRoom("a shadow of "+o.Projection.Name(), replay.Room(store)+o.Margin, free)
}

// checkFree stops a shadow that would take the last of the disk from what serves.
func (o *Options) checkFree() error {
	if o.Disk == nil {
		return nil
	}
	_, free, err := o.Disk()
	if err != nil {
		return err
	}
	return replay.CheckFree(o.Margin, free)
}
