package access

import (
	"sync"
	"time"
)

// maxVerified bounds the tokens that are remembered: some 2 MB. With more callers than that at once, some are verified again.
const maxVerifiedTokens = 10_000

// verified remembers which tokens were good, by their hashes, so that a caller who calls often pays for its signature once.
type verifiedTokens struct {
	capacity int
	mu       sync.RWMutex
	byHash   map[tokenHash]token
}

func newVerifiedTokens(most int) *verifiedTokens {
	return &verifiedTokens{capacity: most, byHash: map[tokenHash]token{}}
}

func (v *verifiedTokens) find(id *tokenHash) (token, bool) {
	v.mu.RLock()
	t, ok := v.byHash[*id]
	v.mu.RUnlock()
	return t, ok
}

// add remembers a token. If the cache is full, it evicts expired tokens, or any token if none has expired.
func (v *verifiedTokens) add(id *tokenHash, t token, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.byHash) >= v.capacity {
		tried := 0
		for other, o := range v.byHash {
			if tried++; o.isExpired(now) || tried == evictionTries {
				delete(v.byHash, other)
				break
			}
		}
	}
	v.byHash[*id] = t
}

// evictionTries is how many are looked at for one that has expired. Maps begin anywhere.
const evictionTries = 16

func (t *token) isExpired(now time.Time) bool { return !t.expires.IsZero() && !now.Before(t.expires) }
