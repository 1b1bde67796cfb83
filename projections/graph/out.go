package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// NewOut returns a graph that folds the ends of edges at the homes of followers alone, for a projection that asks what a
// reader sees and whom a post concerns. It has the rows 0x10, 0x11, 0x12, 0x22, 0x23 and 0x24 of the table in keys.go, and no
// lists, no counts and no boards. It answers [Queries.Visibility], [Queries.SeesBoard], [Queries.User],
// [Queries.EachFollowee], [Queries.EachFollowedBoard] and the regions, which a fold walks to find all readers whom a post concerns.
func NewOut(cache *querycache.Cache) *Graph {
	return &Graph{cache: cache, txn: txn{outEndsOnly: true}}
}

// Related is one row of a region: a user at the home of whom the store has an edge to the owner that the region is of.
type Related struct {
	// Key is the id in its key encoding. It shares the memory of the row.
	Key []byte
	// Follows: explicitly, or, in the region of a board, the board.
	Follows bool
	// Boards: single boards of the owner, and not the owner. Not in the region of a board.
	Boards bool
}

// RegionPrefix appends the prefix of the region of a user: all at whose homes the store has an edge to the user, by
// partition and id. Behind it, a byte is the prefix of one partition. The rows are read by [CutRegion].
func RegionPrefix(dst []byte, owner string) []byte {
	return projections.AppendKey(dst, tagRegion, owner)
}

// BoardRegionPrefix is [RegionPrefix] for a board.
func BoardRegionPrefix(dst []byte, owner, board string) []byte {
	return projections.AppendKey(dst, tagBoardRegion, owner, board)
}

// CutRegion reads a row of a region: what the key has after the prefix, from the partition on, and the value.
func CutRegion(rest, value []byte) (r Related, err error) {
	if len(rest) > 0 {
		r.Key = rest[1:]
	}
	r.Follows = true
	switch {
	case len(value) == 0:
		return r, nil
	case len(value) > 1 || value[0] == 0 || value[0] >= 1<<regionFlagBits:
		return r, rowError("region", value)
	}
	r.Follows, r.Boards = value[0]&regionNotFollowed == 0, value[0]&regionBoardsOnly != 0
	return r, nil
}

// SeesBoard reports whether a reader with [Visibility.Boards] sees the pins on a board, with at most two point reads. It does not
// ask whether the board exists, and not for mutes.
func (q *Queries) SeesBoard(reader, owner, board string) (bool, error) {
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, reader, owner)
	if err != nil {
		return false, err
	}
	r, err := q.boardRelation(&e, outEnd, reader, owner, board)
	_, explicit := e.explicitSince()
	return r.kind == relationFollow || explicit && r.kind == relationNone, err
}

// EachFollowee calls do with whom a reader follows explicitly, by id, until it returns an error.
func (q *Queries) EachFollowee(reader string, do func(user string) error) error {
	return q.eachEdge(reader, func(user string, e *edge) error {
		if _, explicit := e.explicitSince(); !explicit {
			return nil
		}
		return do(user)
	})
}

// EachFollowedBoardOf calls do with the boards of one owner that a reader follows, until it returns an error.
func (q *Queries) EachFollowedBoardOf(reader, owner string, do func(board string) error) error {
	prefix := projections.AppendKey(nil, tagBoardEdge, reader, owner)
	return q.eachFollowedBoardBelow(reader, prefix, func(_, board string) error { return do(board) })
}

// EachFollowedBoard calls do with the boards that a reader follows, by owner and id, until it returns an error. It reads the
// edges of the reader once, and the board edges.
func (q *Queries) EachFollowedBoard(reader string, do func(owner, board string) error) error {
	return q.eachFollowedBoardBelow(reader, projections.AppendKey(nil, tagBoardEdge, reader), do)
}

func (q *Queries) eachFollowedBoardBelow(reader string, prefix []byte, do func(owner, board string) error) (err error) {
	before := len(projections.AppendKey(nil, tagBoardEdge, reader))
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	var of string
	var owner edge
	for it.Next() {
		id, rest, err := events.CutID(it.Key()[before:])
		if err != nil {
			return err
		}
		board, err := cutUser(rest)
		if err != nil {
			return err
		}
		if id != of {
			if owner, err = readEdge(q.reader, q.keyBuffer(), outEnd, reader, id); err != nil {
				return err
			}
			of = id
		}
		var e boardEdge
		if err := e.decodeRow(it.Value()); err != nil {
			return err
		}
		if e.relation(&owner).kind != relationFollow {
			continue
		}
		if err := do(id, board); err != nil {
			return err
		}
	}
	return nil
}

// eachEdge calls do with the edges of a user, by the id of the other, until it returns an error.
func (q *Queries) eachEdge(user string, do func(peer string, e *edge) error) (err error) {
	prefix := projections.AppendKey(nil, tagEdge, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next() {
		peer, err := cutUser(it.Key()[len(prefix):])
		if err != nil {
			return err
		}
		var e edge
		if err := e.decodeRow(it.Value()); err != nil {
			return err
		}
		if err := do(peer, &e); err != nil {
			return err
		}
	}
	return nil
}
