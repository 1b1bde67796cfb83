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
	// needsLookup reports whether a follower must be looked up for a call with so many follows. If
	// not, the follows are deducted from the allowance.
	needsLookup := func(user string, follows int) bool {
		return len(cache.reserve([]*followeeChanges{{user: user, addCount: follows}}, now)) == 1
	}

	if !needsLookup("ann", 1) {
		t.Error("1 follow of an unknown follower is allowed, want a lookup")
	}

	// Half of 11 is 5, which the first two calls use up.
	cache.remember([]*followeeChanges{{user: "ann", remaining: 11}})
	if needsLookup("ann", 3) {
		t.Error("3 follows need a lookup, want them allowed, because 11 are left")
	}
	if needsLookup("ann", 2) {
		t.Error("2 more follows after 3 need a lookup, want them allowed, because half of 11 is 5")
	}
	if !needsLookup("ann", 1) {
		t.Error("1 more follow after 5 is allowed, want a lookup, because half of 11 is 5")
	}
	if !needsLookup("bob", 1) {
		t.Error("1 follow of bob is allowed, want a lookup, because only ann was looked up")
	}

	cache.remember([]*followeeChanges{{user: "ann", remaining: 0}})
	if !needsLookup("ann", 1) {
		t.Error("1 follow is allowed although none is left, want a lookup")
	}

	// Allowances expire.
	cache.remember([]*followeeChanges{{user: "ann", remaining: 100}})
	now = now.Add(followCapCacheLifetime)
	if !needsLookup("ann", 1) {
		t.Errorf("1 follow is allowed %v after the lookup, want a lookup", followCapCacheLifetime)
	}

	// When the cache is full, the next call drops all allowances.
	for i := range maxCachedFollowers {
		cache.remember([]*followeeChanges{{user: fmt.Sprint(i), remaining: 100}})
	}
	if !needsLookup("0", 1) {
		t.Error("1 follow is allowed after the cache was full, want a lookup")
	}
	if got := len(cache.remainingFollows); got > 1 {
		t.Errorf("followers in the cache after it was full: got %d, want at most 1", got)
	}
}

// TestFollowCapCacheSavesLookups checks that follows within the cached allowance are accepted
// without a lookup. The service has no stores, so a lookup would fail.
func TestFollowCapCacheSavesLookups(t *testing.T) {
	s := &Service{Options: Options{MaxFollowees: 100}, followCapCache: newFollowCapCache()}
	s.followCapCache.lastCleared = time.Now().Add(time.Hour) // the cache is not cleared during the test
	s.followCapCache.remember([]*followeeChanges{{user: "ann", remaining: 4}})

	// Half of the 4 follows are allowed, one per call.
	follow := []events.CheckedEvent{{Event: events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}}}
	for i := range 2 {
		refused, err := s.refuseFollowsOverLimit(t.Context(), follow)
		if err != nil {
			t.Errorf("follow %d: got the error %v, want none", i+1, err)
		}
		if len(refused) != 0 {
			t.Errorf("follow %d: got the refusals %v, want none", i+1, refused)
		}
	}
}
