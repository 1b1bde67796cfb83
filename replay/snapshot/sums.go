package snapshot

import "sync"

// sums caches the checksums of tables. That is safe, because a store writes a table once and never uses its number again.
type sums struct {
	mu sync.Mutex
	// new are the checksums used since the last age, old those used in the period before it.
	old, new map[sumKey]string
}

type sumKey struct {
	dir, name string
	size      int64
}

func (s *sums) get(key sumKey) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.new[key]
	if sum == "" {
		sum = s.old[key]
	}
	if sum != "" {
		s.putLocked(key, sum)
	}
	return sum
}

func (s *sums) put(key sumKey, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(key, sum)
}

func (s *sums) putLocked(key sumKey, sum string) {
	if s.new == nil {
		s.new = map[sumKey]string{}
	}
	s.new[key] = sum
}

// age forgets the checksums that were not used since the last call but one.
func (s *sums) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old, s.new = s.new, nil
}
