package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user of a shard who has pins or a read marker. It may name a user
// several times.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{tagOutbox, tagPinCount, tagReadMarker} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board of a shard that has pins.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	return projections.EachPair(r, shard, tagBoardPinCount, do)
}
