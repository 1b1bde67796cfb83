package access

import (
	"sync"
	"time"
)

// maxVerifiedTokens is how many tokens are cached, which takes about 2 MB. If more callers are
// active, some tokens are verified several times.
const maxVerifiedTokens = 10_000

// verifiedTokens caches what is known about verified JWTs, so that the signature of a token is
// verified once and not for each call.
type verifiedTokens struct {
	capacity int

	mu     sync.RWMutex // guards byHash
	byHash map[tokenHash]credential
}

func newVerifiedTokens(capacity int) *verifiedTokens {
	return &verifiedTokens{capacity: capacity, byHash: map[tokenHash]credential{}}
}

// find returns what is known about the token with a hash, or false if the token is not cached. The
// token may have expired since it was verified.
func (v *verifiedTokens) find(hash *tokenHash) (credential, bool) {
	v.mu.RLock()
	c, ok := v.byHash[*hash]
	v.mu.RUnlock()
	return c, ok
}

// add adds the token with a hash. If the cache is full, it first evicts another token: one that has
// expired, if a small sample contains one, and otherwise the last one of the sample.
func (v *verifiedTokens) add(hash *tokenHash, c credential, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.byHash) >= v.capacity {
		tries := 0
		for other, cached := range v.byHash {
			tries++
			if cached.isExpired(now) || tries == evictionTries {
				delete(v.byHash, other)
				break
			}
		}
	}
	v.byHash[*hash] = c
}

// evictionTries is how many tokens are examined for one that has expired. The order of a map is
// random, so they are a random sample.
const evictionTries = 16

// isExpired reports whether the credential has expired.
func (c *credential) isExpired(now time.Time) bool {
	return !c.expires.IsZero() && !now.Before(c.expires)
}
