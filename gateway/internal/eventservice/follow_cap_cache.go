package eventservice

import (
	"hash/maphash"
	"sync"
	"time"
)

// room remembers of followers who are far below the followee cap how many more users they may follow. Otherwise every follow looks up
// how many there are, which took a quarter of the processor time of follows over HTTP (docs/decisions/0039). It is half of what is left:
// what other nodes and imports add is not known here until it is forgotten.
type followCapCache struct {
	seed maphash.Seed

	mu sync.Mutex
	// left is by the hash of the follower.
	remainingFollows map[uint64]int64
	lastCleared      time.Time
}

const (
	// roomLife is how long it is remembered, and mostRooms of how many followers.
	followCapCacheLifetime = time.Minute
	maxCachedFollowers     = 1 << 17
)

func newFollowCapCache() *followCapCache {
	return &followCapCache{seed: maphash.MakeSeed(), remainingFollows: map[uint64]int64{}}
}

// without returns the followers who may have less room than a call needs. The others have as much less as it adds, also if it fails.
func (r *followCapCache) reserve(followers []*followeeChanges, now time.Time) (rest []*followeeChanges) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.lastCleared) >= followCapCacheLifetime || len(r.remainingFollows) >= maxCachedFollowers {
		clear(r.remainingFollows)
		r.lastCleared = now
	}
	for _, f := range followers {
		hash, adds := maphash.String(r.seed, f.user), int64(f.addCount)
		if left := r.remainingFollows[hash]; left >= adds {
			r.remainingFollows[hash] = left - adds
		} else {
			rest = append(rest, f)
		}
	}
	return rest
}

// is notes how many users a follower may follow besides those of a call.
func (r *followCapCache) remember(f *followeeChanges, left int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remainingFollows[maphash.String(r.seed, f.user)] = left / 2
}
