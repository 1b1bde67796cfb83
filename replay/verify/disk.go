package verify

import (
	"fmt"

	"github.com/skein-feed/skein/replay"
)

// checkDisk returns [replay.ErrDisk] if there is too little free disk for a shadow. The caller
// removes what is left of an earlier shadow first.
func (o *Options) checkDisk() error {
	if o.FreeDisk == nil {
		return nil
	}
	free, err := o.FreeDisk()
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	return replay.CheckSpace("a shadow of "+o.projection.Name(), replay.BuildSpace(o.StoreBytes())+o.Margin, free)
}

// checkFree returns [replay.ErrDisk] if less than Margin is free, which the service needs.
func (o *Options) checkFree() error {
	if o.FreeDisk == nil {
		return nil
	}
	free, err := o.FreeDisk()
	if err != nil {
		return err
	}
	return replay.CheckFree(o.Margin, free)
}
