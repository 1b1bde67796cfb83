package ranks

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// rank is the position of a fact in the order of facts. Its highest bit says whether the fact is live, then comes its time, then a bit
// for facts that remove. 0 means there is no fact, and sorts first. Two facts of one pair of users with the same rank say the same.
type rank uint64

const (
	liveRank rank = 1 << 63
	lastRank rank = 1<<64 - 1
)

func rankOf(ev *events.Event) rank {
	r := (rank(ev.Time) + 1) << 1 // a time may be 0
	switch ev.Kind {
	case events.UserUnfollowed, events.BoardUnfollowed, events.UserBlocked, events.UserUnblocked:
		r |= 1
	}
	if !ev.Backfill {
		r |= liveRank
	}
	return r
}

func (r rank) live() bool    { return r&liveRank != 0 }
func (r rank) removes() bool { return r&1 != 0 }

// valid reports whether a fact can have the rank.
func (r rank) valid() bool { return r&^liveRank >= 2 && r&^liveRank < 1<<62 }

// block is the state of the block of one user by another.
type block byte

const (
	blockNone block = iota
	blockImported
	blockLive
	// blockEnded: the latest live fact is an unblock. History does not undo it. Such an unblock may have ended nothing.
	blockEnded
)

func (b block) stands() bool { return b == blockImported || b == blockLive }

// standing has the facts between two users that decide which facts about boards of one hold for the other.
type standing struct {
	// followed is the rank of the latest follow that is no repeat. It is kept only while it is later than unfollowed.
	followed rank
	// unfollowed is the rank of the latest unfollow, block by either, or end of a block. No edge of the pair has a lower rank: such a fact
	// never holds again.
	unfollowed rank
	// barred: one of the users blocks the other.
	barred bool
}

func (s standing) explicit() bool { return !s.barred && s.followed > s.unfollowed }

// follows returns the rank above which a follow of a board holds.
func (s standing) follows() rank {
	if s.barred {
		return lastRank
	}
	return s.unfollowed
}

// excludes returns the rank above which an unfollow of a board is an exclusion.
func (s standing) excludes() rank {
	if s.explicit() {
		return s.followed
	}
	return lastRank
}

// edge is the relation of a user to a board.
type edge struct {
	follows bool
	// only: the user follows the board, but not its owner explicitly.
	only     bool
	excludes bool
}

// edge derives the relation to a board from the latest fact about it; 0 means there is none.
func (s standing) edge(at rank) edge {
	if at.removes() {
		return edge{excludes: at > s.excludes()}
	}
	e := edge{follows: at > s.follows()}
	e.only = e.follows && !s.explicit()
	return e
}

// pair is the row of a pair while an event changes it.
type pair struct {
	from, to string
	pairRow

	// was is the row before the event.
	was pairRow
	// tally is the change of from's counts of boards; the counts of users follow from the row before and after.
	tally userTally
}

// pairRow is the row of a pair.
type pairRow struct {
	followed, unfollowed rank // see standing
	// mine is from's block of to, theirs to's block of from. The rows of both directions have both.
	mine, theirs block
	// mineEnded and theirsEnded are the ranks of the first unblock after the latest live block, or of the first unblock of all: while
	// the block is blockEnded, else 0. A backfilled block that arrives later ended with it.
	mineEnded, theirsEnded rank
	// edges is the number of boards of to that have an edge from from: with 0, sweep reads nothing. follows is the number of those
	// that from follows.
	edges, follows int64
}

// renewed is the rank above which a live follow is no repeat of an earlier one, even if no unfollow lies between the two.
func (r *pairRow) renewed() rank { return max(r.mineEnded, r.theirsEnded) }

func (r *pairRow) standing() standing {
	return standing{r.followed, r.unfollowed, r.mine.stands() || r.theirs.stands()}
}

// Bits of the first byte of a pair row: which numbers follow, and the two blocks.
const (
	pairFollowed = 1 << iota
	pairUnfollowed
	pairEdges
	pairMine      // two bits
	pairTheirs    = pairMine << 2
	pairBitsAbove = pairTheirs << 2
)

func (r *pairRow) append(dst []byte) []byte {
	if *r == (pairRow{}) {
		return dst
	}
	at := len(dst)
	dst = append(dst, byte(r.mine)*pairMine|byte(r.theirs)*pairTheirs)
	if r.followed != 0 {
		dst[at] |= pairFollowed
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.followed))
	}
	if r.unfollowed != 0 {
		dst[at] |= pairUnfollowed
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.unfollowed))
	}
	if r.mine == blockEnded {
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.mineEnded))
	}
	if r.theirs == blockEnded {
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.theirsEnded))
	}
	if r.edges != 0 {
		dst[at] |= pairEdges
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.edges)), uint64(r.follows))
	}
	return dst
}

func decodePair(row []byte) (r pairRow, err error) {
	bad := projections.RowError("pair", row)
	if len(row) == 0 || row[0] == 0 || row[0] >= pairBitsAbove {
		return r, bad
	}
	rest := row[1:]
	r.mine, r.theirs = block(row[0]/pairMine&3), block(row[0]/pairTheirs&3)
	for _, f := range []struct {
		present bool
		at      *rank
		removes bool
	}{
		{row[0]&pairFollowed != 0, &r.followed, false},
		{row[0]&pairUnfollowed != 0, &r.unfollowed, true},
		{r.mine == blockEnded, &r.mineEnded, true},
		{r.theirs == blockEnded, &r.theirsEnded, true},
	} {
		if !f.present {
			continue
		}
		if *f.at, rest, err = cutRank(rest); err != nil || f.at.removes() != f.removes {
			return r, bad
		}
	}
	if row[0]&pairEdges != 0 {
		if r.edges, err = fields.CutCount(&rest); err != nil || r.edges == 0 {
			return r, bad
		}
		if r.follows, err = fields.CutCount(&rest); err != nil || r.follows > r.edges {
			return r, bad
		}
	}
	switch {
	case len(rest) != 0, r.followed != 0 && r.followed < r.unfollowed:
		return r, bad
	case r.standing().barred && r.follows != 0, (r.mine == blockLive || r.theirs == blockLive) && r.followed != 0:
		return r, bad // while a live block stands, no follow is later
	}
	return r, nil
}

// cutRank reads a rank of 8 bytes, and returns the bytes after it.
func cutRank(rest []byte) (rank, []byte, error) {
	if len(rest) < 8 {
		return 0, nil, projections.RowError("rank", rest)
	}
	r := rank(binary.BigEndian.Uint64(rest))
	if !r.valid() {
		return 0, nil, projections.RowError("rank", rest)
	}
	return r, rest[8:], nil
}

func (c *Ranks) readPair(from, to string) (*pair, error) {
	p := &pair{from: from, to: to}
	c.key = projections.AppendKey(c.key[:0], tagPair, from, to)
	row, ok, err := c.b.Get(c.key)
	if err != nil || !ok {
		return p, err
	}
	if p.was, err = decodePair(row); err != nil {
		return nil, err
	}
	p.pairRow = p.was
	return p, nil
}

// writePair writes a pair, and counts its change for both users. Its edges must be written.
func (c *Ranks) writePair(p *pair) error {
	if p.follows < 0 || p.edges < p.follows {
		return projections.RowError("edges and follows of a pair", []byte(p.from+" "+p.to))
	}
	from, to := p.tally, userTally{}
	for _, s := range []struct {
		row   *pairRow
		delta int64
	}{{&p.was, -1}, {&p.pairRow, 1}} {
		switch {
		case s.row.standing().explicit():
			from[userFollowing] += s.delta
			to[userFollowers] += s.delta
		case s.row.follows > 0:
			from[userFollowingImplicit] += s.delta
			to[userFollowersImplicit] += s.delta
		}
	}
	if err := c.countUser(p.from, from); err != nil {
		return err
	}
	if err := c.countUser(p.to, to); err != nil {
		return err
	}
	p.forget(c.b)
	if p.pairRow == p.was {
		return nil
	}
	c.key = projections.AppendKey(c.key[:0], tagPair, p.from, p.to)
	c.value = p.append(c.value[:0])
	c.keep(c.key, c.value)
	c.key = projections.AppendKey(c.key[:0], tagFollower, p.to, p.from)
	switch {
	case len(c.value) == 0:
		c.b.Delete(c.key)
	case p.was == (pairRow{}):
		c.b.Set(c.key, nil)
	}
	return nil
}

// forget drops facts that matter only for later history.
func (r *pairRow) forget(b *projections.Batch) {
	if r.followed < r.unfollowed {
		r.followed = 0
	}
	if b.BackfillsClosed() {
		r.unfollowed = 0
	}
}
