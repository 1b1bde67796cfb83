package eventservice

import (
	"fmt"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

func TestFollowCapCacheAllowsHalfOfWhatIsLeft(t *testing.T) {
	cache := newFollowCapCache()
	now := time.Unix(1, 0)
	// needsLookup reports whether a follower must be looked up for a call with so many follows.
	needsLookup := func(user string, follows int) bool {
		return len(cache.reserve([]*followeeChanges{{user: user, addCount: follows}}, now)) == 1
	}

	if !needsLookup("ann", 1) {
		t.Error("the cache allows a follower of whom it knows nothing")
	}
	cache.remember([]*followeeChanges{{user: "ann", remaining: 11}})
	if needsLookup("ann", 3) || needsLookup("ann", 2) {
		t.Error("the cache does not allow half of the 11 follows that are left")
	}
	if !needsLookup("ann", 1) {
		t.Error("the cache allows more than half of the 11 follows that are left")
	}
	if !needsLookup("bob", 1) {
		t.Error("the cache allows bob the follows of ann")
	}
	cache.remember([]*followeeChanges{{user: "ann", remaining: 0}})
	if !needsLookup("ann", 1) {
		t.Error("the cache allows a follow although none is left")
	}

	cache.remember([]*followeeChanges{{user: "ann", remaining: 100}})
	now = now.Add(followCapCacheLifetime)
	if !needsLookup("ann", 1) {
		t.Errorf("the cache still knows the follower after %v", followCapCacheLifetime)
	}
	for i := range maxCachedFollowers {
		cache.remember([]*followeeChanges{{user: fmt.Sprint(i), remaining: 100}})
	}
	if !needsLookup("0", 1) || len(cache.remainingFollows) > 1 {
		t.Errorf("the cache keeps %d followers, expected at most 1 after it was full", len(cache.remainingFollows))
	}
}

// The service has no stores, so a lookup would fail.
func TestFollowCapCacheSavesLookups(t *testing.T) {
	s := &Service{Options: Options{MaxFollowees: 100}, followCapCache: newFollowCapCache()}
	s.followCapCache.lastCleared = time.Now().Add(time.Hour) // the cache is not cleared during the test
	s.followCapCache.remember([]*followeeChanges{{user: "ann", remaining: 4}})
	follow := []events.CheckedEvent{{Event: events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}}}
	for range 2 {
		if refused, err := s.refuseFollowsOverLimit(t.Context(), follow); len(refused) != 0 || err != nil {
			t.Errorf("expected no rejection and no error, got %v, %v", refused, err)
		}
	}
}
