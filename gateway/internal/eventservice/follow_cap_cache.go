package eventservice

import (
	"hash/maphash"
	"sync"
	"time"
)

// followCapCache skips the followee-cap lookup for followers who are far below the cap. It
// remembers, for about a minute, how many more users each of them may follow. The lookup took about
// a sixth of the processor time of durable follows over HTTP, because each fold of a follow
// invalidates the count in the cache of the graph (docs/decisions/0039-followee-cap.md).
//
// The allowance is half of what a lookup finds to be left, because follows on other nodes and
// imports are not known here until the next lookup.
type followCapCache struct {
	seed maphash.Seed

	mu sync.Mutex
	// remainingFollows has the allowance of each follower, by the hash of the follower. A hash
	// takes less memory than an id. Two followers with the same hash share an allowance, which the
	// guard tolerates.
	remainingFollows map[uint64]int64
	lastCleared      time.Time
}

const (
	// followCapCacheLifetime is the time after which all allowances are dropped.
	followCapCacheLifetime = time.Minute
	// maxCachedFollowers is the number of allowances at which all of them are dropped.
	maxCachedFollowers = 1 << 17
)

func newFollowCapCache() *followCapCache {
	return &followCapCache{seed: maphash.MakeSeed(), remainingFollows: map[uint64]int64{}}
}

// reserve deducts the follows of a call from the cached allowances. It returns the followers whose
// allowance is missing or too small; the caller must look those up. A call that fails does not give
// its reservation back, which only costs an additional lookup later.
func (c *followCapCache) reserve(followers []*followeeChanges, now time.Time) (unknown []*followeeChanges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Dropping all of them at once needs no time per allowance. Each then costs one more lookup.
	isExpired := now.Sub(c.lastCleared) >= followCapCacheLifetime
	if isExpired || len(c.remainingFollows) >= maxCachedFollowers {
		clear(c.remainingFollows)
		c.lastCleared = now
	}
	for _, f := range followers {
		hash := maphash.String(c.seed, f.user)
		follows := int64(f.addCount)
		if remaining := c.remainingFollows[hash]; remaining >= follows {
			c.remainingFollows[hash] = remaining - follows
		} else {
			unknown = append(unknown, f)
		}
	}
	return unknown
}

// remember records the results of lookups. The allowance of each follower is half of what remains
// after the call. Followers for whom nothing remains keep their allowance, which was too small for
// the call.
func (c *followCapCache) remember(followers []*followeeChanges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range followers {
		if f.remaining >= 0 {
			c.remainingFollows[maphash.String(c.seed, f.user)] = f.remaining / 2
		}
	}
}
