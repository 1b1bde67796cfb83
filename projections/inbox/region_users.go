package inbox

import (
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/internal/keylist"
)

// regionUserList is a list of users of a region. A fold collects them before it writes, because it
// may not write while it iterates over the region.
type regionUserList struct {
	// rows has, for each user, a byte of flags, the partition (1 byte) and the id.
	rows keylist.List
}

// The flags of a user.
const (
	regionUserFollows = 1 << iota
	regionUserFollowsBoards
)

// add adds a user. row is the part of the key that follows the prefix of the region: the partition
// and the id of the user.
func (l *regionUserList) add(r graph.RegionRow, row []byte) {
	var flags byte
	if r.Follows {
		flags |= regionUserFollows
	}
	if r.BoardsOnly {
		flags |= regionUserFollowsBoards
	}
	l.rows.Add([]byte{flags}, row)
}

func (l *regionUserList) len() int { return l.rows.Len() }

// at returns the i-th user. It shares the memory of the list.
func (l *regionUserList) at(i int) graph.RegionRow {
	entry := l.rows.At(i)
	return graph.RegionRow{
		Key:        entry[2:],
		Follows:    entry[0]&regionUserFollows != 0,
		BoardsOnly: entry[0]&regionUserFollowsBoards != 0,
	}
}

// partitionAt returns the partition of the i-th user.
func (l *regionUserList) partitionAt(i int) uint8 { return l.rows.At(i)[1] }

func (l *regionUserList) reset() { l.rows.Reset() }
