package snapshot

import "sync"

// checksumCache caches the checksums of tables. It needs no invalidation, because a store writes
// each table once and never uses its number again.
type checksumCache struct {
	mu sync.Mutex
	// current has the checksums that were used since the last call of dropUnused, and previous
	// those that were used in the period before that.
	previous, current map[tableKey]string
}

// tableKey identifies a table.
type tableKey struct {
	dir, name string
	size      int64
}

// get returns the checksum of a table, or "" if it is not in the cache.
func (s *checksumCache) get(key tableKey) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.current[key]
	if sum == "" {
		sum = s.previous[key]
	}
	if sum != "" {
		s.putLocked(key, sum)
	}
	return sum
}

// put adds the checksum of a table.
func (s *checksumCache) put(key tableKey, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(key, sum)
}

// putLocked adds the checksum of a table. s.mu is held.
func (s *checksumCache) putLocked(key tableKey, sum string) {
	if s.current == nil {
		s.current = map[tableKey]string{}
	}
	s.current[key] = sum
}

// dropUnused drops the checksums that were not used since the call before the last one.
func (s *checksumCache) dropUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.previous = s.current
	s.current = nil
}
