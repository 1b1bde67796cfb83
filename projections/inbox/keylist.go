package inbox

import "github.com/skein-feed/skein/projections/graph"

// keyList is keys, one behind the other, so that however many they are, hardly anything is allocated.
type keyList struct {
	data []byte
	// ends[i] is where the i-th ends.
	ends []int
}

func (l *keyList) add(key []byte) {
	l.data = append(l.data, key...)
	l.ends = append(l.ends, len(l.data))
}

// addMet adds a row of a region: the flags, and what the key has from the partition on.
func (l *keyList) addRegionUser(r graph.Related, row []byte) {
	var flags byte
	if r.Follows {
		flags |= regionUserFollows
	}
	if r.Boards {
		flags |= regionUserFollowsBoards
	}
	l.data = append(append(l.data, flags), row...)
	l.ends = append(l.ends, len(l.data))
}

func (l *keyList) len() int { return len(l.ends) }

// at returns the i-th key, good until the list is reset.
func (l *keyList) at(i int) []byte {
	from := 0
	if i > 0 {
		from = l.ends[i-1]
	}
	return l.data[from:l.ends[i]:l.ends[i]]
}

func (l *keyList) reset() { l.data, l.ends = l.data[:0], l.ends[:0] }
