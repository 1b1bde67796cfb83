package snapshot

import "sync"

// sums remembers the checksums of tables: a table is written once, under a number that its store does not use again.
type sums struct {
	mu sync.Mutex
	// old are those of the snapshot before the last, new those since.
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

// age forgets what was not asked for since the last call but one.
func (s *sums) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old, s.new = s.new, nil
}
