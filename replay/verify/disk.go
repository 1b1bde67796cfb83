package verify

import (
	"fmt"

	"github.com/skein-feed/skein/replay"
)

// checkDisk refuses a shadow that would fill the disk. What an earlier shadow has left is removed by then.
func (o *Options) checkDisk() error {
	if o.Disk == nil {
		return nil
	}
	store, free, err := o.Disk()
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	return replay.CheckRoom("a shadow of "+o.projection.Name(), replay.Room(store)+o.Margin, free)
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
