package access

import (
	"sync"
	"time"
)

// maxVerified bounds the tokens that are remembered: some 2 MB. With more callers than that at once, some are verified again.
const maxVerified = 10_000

// verified remembers which tokens were good, by their hashes, so that a caller who calls often pays for its signature once.
type verified struct {
	most int
	mu   sync.RWMutex
	byID map[digest]token
}

func newVerified(most int) *verified { return &verified{most: most, byID: map[digest]token{}} }

func (v *verified) find(id *digest) (token, bool) {
	v.mu.RLock()
	t, ok := v.byID[*id]
	v.mu.RUnlock()
	return t, ok
}

// add remembers a token. If the cache is full, it evicts expired tokens, or any token if none has expired.
func (v *verified) add(id *digest, t token, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.byID) >= v.most {
		tried := 0
		for other, o := range v.byID {
			if tried++; o.expired(now) || tried == evictionTries {
				delete(v.byID, other)
				break
			}
		}
	}
	v.byID[*id] = t
}

// evictionTries is how many are looked at for one that has expired. Maps begin anywhere.
const evictionTries = 16

func (t *token) expired(now time.Time) bool { return !t.expires.IsZero() && !now.Before(t.expires) }
