package eventservice

import (
	"fmt"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

func TestRoom(t *testing.T) {
	r, now := newFollowCapCache(), time.Unix(1, 0)
	// looksUp reports whether a follower who adds some must be looked up.
	looksUp := func(user string, adds int) bool {
		return len(r.reserve([]*followeeChanges{{user: user, addCount: adds}}, now)) == 1
	}
	if !looksUp("ann", 1) {
		t.Error("a follower of whom nothing is known has room")
	}
	r.remember(&followeeChanges{user: "ann"}, 11)
	if looksUp("ann", 3) || looksUp("ann", 2) {
		t.Error("half of what is left is no room")
	}
	if !looksUp("ann", 1) || !looksUp("bob", 1) {
		t.Error("more than half of what is left is room, or the room of another")
	}
	r.remember(&followeeChanges{user: "ann"}, 0)
	if !looksUp("ann", 1) {
		t.Error("nothing is left, and is room")
	}
	r.remember(&followeeChanges{user: "ann"}, 100)
	now = now.Add(followCapCacheLifetime)
	if !looksUp("ann", 1) {
		t.Error("it is remembered for ever")
	}
	for i := range maxCachedFollowers {
		r.remember(&followeeChanges{user: fmt.Sprint(i)}, 100)
	}
	if !looksUp("0", 1) || len(r.remainingFollows) > 1 {
		t.Errorf("%d followers are remembered", len(r.remainingFollows))
	}
}

// TestRoomSparesLookups: a service without stores takes the follows of one who has room.
func TestRoomSparesLookups(t *testing.T) {
	s := &Service{Options: Options{Followees: 100}, followCapCache: newFollowCapCache()}
	s.followCapCache.lastCleared = time.Now().Add(time.Hour) // nothing is forgotten meanwhile
	s.followCapCache.remember(&followeeChanges{user: "ann"}, 4)
	follow := []events.CheckedEvent{{Event: events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}}}
	for range 2 {
		if refused, err := s.refuseFollowsOverLimit(t.Context(), follow); len(refused) != 0 || err != nil {
			t.Errorf("%v, %v", refused, err)
		}
	}
}
