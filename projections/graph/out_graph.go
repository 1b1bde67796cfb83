package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// NewOutEnds returns a graph that folds only out-ends. It is for a projection of feeds that embeds
// it (embed.go), and that asks what a reader sees, and which readers see a user's pins.
//
// It has the rows 0x10, 0x11, 0x12, 0x22, 0x23, 0x24, 0x28, 0x29 and 0x2a of the table in keys.go,
// and no other lists, counts or boards. It answers [Queries.Visibility], [Queries.SeesBoard],
// [Queries.UserFollow], [Queries.EachFollowee], [Queries.EachFollowedBoard],
// [Queries.EachFolloweeWith] and [Queries.FirstMuteEnd]. To find all readers who may see the pins
// of a user or board, walk over the rows of its region ([RegionPrefix], [BoardRegionPrefix]).
func NewOutEnds(cache *querycache.Cache) *Graph {
	return &Graph{cache: cache, fold: eventFold{outEndsOnly: true}}
}

// RegionRow is a row in the region of a user or board. It stands for a follower who has an edge to
// the owner of the region, or a board edge to the board.
type RegionRow struct {
	// Key is the id of the follower, encoded by [events.AppendID]. It shares the memory of the row.
	Key []byte
	// Follows says that the follower follows the owner explicitly. In the region of a board, it
	// says that the follower follows the board.
	Follows bool
	// BoardsOnly says that the follower follows the owner implicitly. It is not set in the region
	// of a board.
	BoardsOnly bool
}

// RegionPrefix appends the prefix of the keys of a user's region. The region has a row for every
// follower whose home the store holds and who has an edge to the owner. The rows are sorted by the
// partition of the follower, and then by id. So the prefix with a partition appended is the prefix
// of the rows of that partition. [DecodeRegionRow] decodes the rows.
func RegionPrefix(dst []byte, owner string) []byte {
	return projections.AppendKey(dst, tagRegion, owner)
}

// BoardRegionPrefix is [RegionPrefix] for a board.
func BoardRegionPrefix(dst []byte, owner, board string) []byte {
	return projections.AppendKey(dst, tagBoardRegion, owner, board)
}

// DecodeRegionRow decodes a row of a region. rest is the part of the key that follows
// [RegionPrefix] or [BoardRegionPrefix].
func DecodeRegionRow(rest, value []byte) (r RegionRow, err error) {
	if len(rest) > 0 {
		r.Key = rest[1:]
	}
	r.Follows = true

	switch {
	case len(value) == 0:
		return r, nil
	case len(value) > 1 || value[0] == 0 || value[0] >= 1<<regionFlagBits:
		return r, projections.RowError("region", value)
	}
	r.Follows = value[0]&regionNotFollowed == 0
	r.BoardsOnly = value[0]&regionBoardsOnly != 0
	return r, nil
}

// SeesBoard reports whether a board appears for a reader: the reader follows the board, or follows
// its owner and does not exclude the board. It is for readers with [Visibility.Boards], and takes
// at most two point reads. It checks neither whether the board exists nor whether the reader mutes
// the owner.
func (q *Queries) SeesBoard(reader, owner, board string) (bool, error) {
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, reader, owner)
	if err != nil {
		return false, err
	}
	relation, err := q.readBoardRelation(&e, outEnd, reader, owner, board)
	_, explicit := e.explicitSince()
	return relation.kind == relationFollow || explicit && relation.kind == relationNone, err
}

// EachFollowee calls do with the users whom a reader follows explicitly, in the order of their ids,
// until do returns an error. It reads all edges of the reader.
func (q *Queries) EachFollowee(reader string, do func(user string) error) error {
	return q.eachEdge(reader, func(user string, e *edge) error {
		if _, explicit := e.explicitSince(); !explicit {
			return nil
		}
		return do(user)
	})
}

// EachFolloweeWith calls do with the users whose follow by a reader has a setting, until do returns
// an error. The setting is [events.SettingNotify] or [events.SettingFavorite]. The user for whom
// the reader set the settings last comes first; users of equal time are ordered by id.
func (q *Queries) EachFolloweeWith(
	reader string, setting events.FollowSettings, do func(user string) error,
) (err error) {
	prefix := projections.AppendKey(nil, settingTag(setting), reader)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for it.Next() {
		user, err := decodeListUser(it.Key()[len(prefix):])
		if err != nil {
			return err
		}
		if err := do(user); err != nil {
			return err
		}
	}
	return nil
}

// settingTag returns the tag of the list of follows with a setting.
func settingTag(setting events.FollowSettings) projections.Tag {
	if setting == events.SettingNotify {
		return tagNotifying
	}
	return tagFavorites
}

// EachFollowedBoardOf calls do with the boards of one owner that a reader follows, until do returns
// an error.
func (q *Queries) EachFollowedBoardOf(reader, owner string, do func(board string) error) error {
	prefix := projections.AppendKey(nil, tagOutBoardEdge, reader, owner)
	return q.eachFollowedBoardWithPrefix(reader, prefix, func(_, board string) error { return do(board) })
}

// EachFollowedBoard calls do with the boards that a reader follows, ordered by owner and board,
// until do returns an error. It reads all board edges of the reader, and the edge to each of the
// owners.
func (q *Queries) EachFollowedBoard(reader string, do func(owner, board string) error) error {
	prefix := projections.AppendKey(nil, tagOutBoardEdge, reader)
	return q.eachFollowedBoardWithPrefix(reader, prefix, do)
}

// eachFollowedBoardWithPrefix is [Queries.EachFollowedBoard] for the board edges whose keys have
// the prefix.
func (q *Queries) eachFollowedBoardWithPrefix(
	reader string, prefix []byte, do func(owner, board string) error,
) (err error) {
	readerPrefixLen := len(projections.AppendKey(nil, tagOutBoardEdge, reader))
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	// The rows of one owner follow one another, so the edge to each owner is read once.
	var currentOwner string
	var ownerEdge edge
	for it.Next() {
		owner, rest, err := events.CutID(it.Key()[readerPrefixLen:])
		if err != nil {
			return err
		}
		board, err := decodeID(rest)
		if err != nil {
			return err
		}

		if owner != currentOwner {
			ownerEdge, err = readEdge(q.reader, q.keyBuffer(), outEnd, reader, owner)
			if err != nil {
				return err
			}
			currentOwner = owner
		}

		var facts boardEdge
		if err := facts.decodeRow(it.Value()); err != nil {
			return err
		}
		if facts.relation(&ownerEdge).kind != relationFollow {
			continue
		}
		if err := do(owner, board); err != nil {
			return err
		}
	}
	return nil
}

// eachEdge calls do with the edges of a follower, in the order of the followees' ids, until do
// returns an error.
func (q *Queries) eachEdge(follower string, do func(followee string, e *edge) error) (err error) {
	prefix := projections.AppendKey(nil, tagOutEdge, follower)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for it.Next() {
		followee, err := decodeID(it.Key()[len(prefix):])
		if err != nil {
			return err
		}
		var e edge
		if err := e.decodeRow(it.Value()); err != nil {
			return err
		}
		if err := do(followee, &e); err != nil {
			return err
		}
	}
	return nil
}
