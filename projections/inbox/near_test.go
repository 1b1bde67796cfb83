package inbox_test

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// usersNear returns n ids in the partition of a user. Every other id is a number.
func usersNear(user string, n int) (ids []string) {
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

// oneCrowd and twoCrowds are ids for the users of generated histories: of one partition, so that
// owners have several followers there, and of two.
var (
	oneCrowd  = usersNear("ann", 6)
	twoCrowds = append(usersNear("bob", 3), usersNear("ann", 3)...)
)

// renameUsers gives the users of a history other ids, in the order in which the history has them.
func renameUsers(history []events.Event, ids []string) []events.Event {
	names := map[string]string{"": ""}
	rename := func(id string) string {
		if _, known := names[id]; !known {
			names[id] = ids[len(names)-1]
		}
		return names[id]
	}
	for i := range history {
		ev := &history[i]
		ev.User = rename(ev.User)
		ev.Peer = rename(ev.Peer)
		ev.RepinUser = rename(ev.RepinUser)
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
