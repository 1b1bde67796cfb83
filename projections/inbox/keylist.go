package inbox

import "github.com/skein-feed/skein/projections/graph"

// keyList is a list of keys in one block of memory, so that adding a key allocates almost nothing.
type keyList struct {
	data []byte
	// ends[i] is the end of the i-th key in data. The key begins where the one before it ends.
	ends []int
}

func (l *keyList) add(key []byte) {
	l.data = append(l.data, key...)
	l.ends = append(l.ends, len(l.data))
}

// The flags of a user of a region in a keyList.
const (
	regionUserFollows = 1 << iota
	regionUserFollowsBoards
)

// addRegionUser adds a user of a region: a byte of flags, then row, which is the partition (1 byte)
// and the id of the user.
func (l *keyList) addRegionUser(r graph.RegionRow, row []byte) {
	var flags byte
	if r.Follows {
		flags |= regionUserFollows
	}
	if r.BoardsOnly {
		flags |= regionUserFollowsBoards
	}
	l.data = append(append(l.data, flags), row...)
	l.ends = append(l.ends, len(l.data))
}

// decodeRegionUser returns what addRegionUser was given. It shares the memory of the list.
func decodeRegionUser(entry []byte) graph.RegionRow {
	return graph.RegionRow{
		Key: entry[2:], Follows: entry[0]&regionUserFollows != 0, BoardsOnly: entry[0]&regionUserFollowsBoards != 0,
	}
}

// regionUserPartition returns the partition of a user that addRegionUser has added.
func regionUserPartition(entry []byte) uint8 { return entry[1] }

func (l *keyList) len() int { return len(l.ends) }

// at returns the i-th key. It is valid until the list is reset.
func (l *keyList) at(i int) []byte {
	start := 0
	if i > 0 {
		start = l.ends[i-1]
	}
	return l.data[start:l.ends[i]:l.ends[i]]
}

func (l *keyList) reset() { l.data, l.ends = l.data[:0], l.ends[:0] }
