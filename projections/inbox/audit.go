package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who has pins or a read marker in a shard. A user may come several times.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{tagOutbox, tagPinCount, tagReadMarker} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board that has a count of pins in a shard.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	return projections.EachPair(r, shard, tagBoardPinCount, do)
}
