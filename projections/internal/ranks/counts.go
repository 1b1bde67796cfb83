package ranks

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// userTally has the counts of a user's relations, or their change by an event.
type userTally [7]int64

// Indexes of a userTally and of its row.
const (
	userFollowing = iota
	userFollowingImplicit
	userFollowers
	userFollowersImplicit
	userBoards
	userFollowedBoards
	userExcludedBoards
)

func readUser(r projections.Reader, key []byte) (t userTally, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return t, err
	}
	if len(row) == 0 {
		return t, projections.RowError("counts of", key)
	}
	return t, fields.ReadCounts(row, t[:])
}

// countUser adds to the counts of a user.
func (c *Ranks) countUser(user string, delta userTally) error {
	if delta == (userTally{}) {
		return nil
	}
	c.key = projections.AppendKey(c.key[:0], tagUserRelations, user)
	t, err := readUser(c.b, c.key)
	if err != nil {
		return err
	}
	if err := fields.AddCounts(t[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = fields.AppendCounts(c.value[:0], t[:])
	c.keep(c.key, c.value)
	return nil
}

// keep writes a row, or removes it if its value is empty.
func (c *Ranks) keep(key, value []byte) {
	if len(value) == 0 {
		c.b.Delete(key)
		return
	}
	c.b.Set(key, value)
}
