package verify

import (
	"fmt"

	"github.com/skein-feed/skein/replay"
)

// checkDisk returns [replay.ErrDisk] if a shadow would fill the disk. The caller removes the rest of an earlier shadow first.
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

// checkFree returns [replay.ErrDisk] if the shadow would use the margin of the disk that the service needs.
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
