package inbox_test

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// near returns n ids in the partition of a user. Every other is a number.
func near(user string, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		id := fmt.Sprint("near", i)
		if i%2 == 1 {
			id = fmt.Sprint(1_000_000 + i)
		}
		if events.ShardOf(id).Partition() == events.ShardOf(user).Partition() {
			ids = append(ids, id)
		}
	}
	return ids
}

// For the users of generated histories: ids of one partition, so that owners have several followers
// there, and of two.
var (
	oneCrowd  = near("ann", 6)
	twoCrowds = append(near("bob", 3), near("ann", 3)...)
)

// renamed gives the users of a history, in the order in which they are met, other ids.
func renamed(history []events.Event, ids []string) []events.Event {
	names := map[string]string{"": ""}
	rename := func(id string) string {
		if _, known := names[id]; !known {
			names[id] = ids[len(names)-1]
		}
		return names[id]
	}
	for i := range history {
		ev := &history[i]
		ev.User, ev.Peer, ev.RepinUser = rename(ev.User), rename(ev.Peer), rename(ev.RepinUser)
		if ev.Encoded == nil {
			continue
		}
		read, rejection := events.FromProto(ev.Proto())
		if rejection != nil {
			panic(rejection)
		}
		ev.Encoded = read.Encoded
	}
	return history
}
