package inbox

import (
	"bytes"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// A pull row says that the pages of a reader merge an outbox with the inbox, because the owner of
// the outbox has too many followers for pushing. A reader who follows the owner explicitly has one
// pull row for the owner. A reader who follows only boards has one for each of these boards.
//
// Invariant: an inbox has every pin above its floor that the reader sees, unless a pull row leads
// to the pin. A pull row leads to a user whom the reader no longer follows only while an event is
// folded in steps.

// pullKey appends the key of a pull row: for an owner, or for one board of the owner if board is
// not nil.
func pullKey(dst []byte, reader, owner string, board *string) []byte {
	dst = projections.AppendKey(dst, tagPull, reader, owner)
	if board != nil {
		dst = events.AppendID(dst, *board)
	}
	return dst
}

// cutPullKey decodes what follows the reader in the key of a pull row.
func cutPullKey(rest []byte) (owner string, board *string, err error) {
	if owner, rest, err = events.CutID(rest); err != nil {
		return "", nil, err
	}
	if len(rest) == 0 {
		return owner, nil, nil
	}

	id, rest, err := events.CutID(rest)
	if err == nil && len(rest) != 0 {
		err = errRow("pull", rest)
	}
	return owner, &id, err
}

// addPullRowIfPulled writes the pull row for an outbox that a reader begins to follow, if the owner
// is pulled in the reader's partition.
func (f *Inbox) addPullRowIfPulled(reader, owner string, board *string) error {
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, events.ShardOf(reader).Partition()))
	if err == nil && pulled {
		f.setPullRow(reader, owner, board, true)
	}
	return err
}

// setPullRow writes a pull row, or deletes it if present is false.
func (f *Inbox) setPullRow(reader, owner string, board *string, present bool) {
	f.key = pullKey(f.key[:0], reader, owner, board)
	if present {
		f.batch.Set(f.key, nil)
	} else {
		f.batch.Delete(f.key)
	}
}

// setPullRowsOfUser writes all pull rows of a follower to an owner, or deletes them if present is
// false.
func (f *Inbox) setPullRowsOfUser(r graph.RegionRow, owner string, present bool) error {
	reader, _, err := events.CutID(r.Key)
	if err != nil {
		return err
	}
	if !present {
		f.dropInbox(r.Key) // the inbox lacks what was not pushed while the owner was pulled
	}

	if r.Follows {
		f.setPullRow(reader, owner, nil, present)
		return nil
	}
	return f.eachFollowedBoard(reader, owner, func(board string) error {
		f.setPullRow(reader, owner, &board, present)
		return nil
	})
}

// eachFollowedBoard calls do with the boards of an owner that a reader follows. do may write to the
// batch, because the boards are collected first.
func (f *Inbox) eachFollowedBoard(reader, owner string, do func(board string) error) error {
	var boards []string
	err := f.queries.EachFollowedBoardOf(reader, owner, func(board string) error {
		boards = append(boards, board)
		return nil
	})
	if err != nil {
		return err
	}

	for _, board := range boards {
		if err := do(board); err != nil {
			return err
		}
	}
	return nil
}

// applyRelationChange is called by the graph after it has written that a reader began or ceased to
// follow an owner or boards.
func (f *Inbox) applyRelationChange(c graph.FollowChange) error {
	if err := f.updatePullRows(&c); err != nil {
		return err
	}

	begins := c.FollowsAfter && !c.FollowedBefore
	for _, board := range c.Boards {
		begins = begins || board.FollowsAfter
	}

	// The inbox of a reader who begins to follow lacks older pins. And no inbox may keep pins of an
	// erased user (I12).
	if begins || c.NoFacts {
		f.dropInbox(events.AppendID(nil, c.Follower))
	}

	// The erasure of the owner ends all follows of the owner, and then deletes the rows that say
	// where the owner is pulled.
	if f.ev.Kind == events.UserDeleted && f.ev.User == c.Owner {
		return nil
	}
	return f.updatePulledOwner(c.Follower, c.Owner, begins)
}

// updatePullRows adapts the pull rows of a reader to an owner after a change of the relation.
func (f *Inbox) updatePullRows(c *graph.FollowChange) error {
	switch {
	case c.FollowsAfter && !c.FollowedBefore:
		// Before, the reader can only have followed boards of the owner. The pull row of the owner
		// replaces those of the boards.
		relation, err := f.queries.Visibility(c.Follower, c.Owner)
		if err != nil {
			return err
		}
		if relation.Boards {
			if err := f.deleteRows(pullKey(nil, c.Follower, c.Owner, nil)); err != nil {
				return err
			}
		}
		return f.addPullRowIfPulled(c.Follower, c.Owner, nil)

	case c.FollowsAfter:
		// The pull row of the owner, or pushing, covers all boards of the owner, also those that
		// were excluded.
		return nil

	case c.FollowedBefore:
		f.setPullRow(c.Follower, c.Owner, nil, false)
		return f.eachFollowedBoard(c.Follower, c.Owner, func(board string) error {
			return f.addPullRowIfPulled(c.Follower, c.Owner, &board)
		})
	}

	// The reader followed only boards, before and after.
	for i := range c.Boards {
		board := &c.Boards[i]
		if !board.FollowsAfter {
			f.setPullRow(c.Follower, c.Owner, &board.Board, false)
			continue
		}
		if err := f.addPullRowIfPulled(c.Follower, c.Owner, &board.Board); err != nil {
			return err
		}
	}
	return nil
}

// pulledOutboxes returns the outboxes that the reader's pull rows name.
func (w *feedIterator) pulledOutboxes() (streams []*stream, err error) {
	prefix := projections.AppendKey(nil, tagPull, w.feed.Reader)
	rows := w.merge.rows // shared: the merge moves it only later
	for ok := rows.SeekGE(prefix); ok && bytes.HasPrefix(rows.Key(), prefix); ok = rows.Next() {
		owner, board, err := cutPullKey(rows.Key()[len(prefix):])
		if err != nil {
			return nil, err
		}
		streams = append(streams, w.queries.outboxStream(&w.keys, owner, board))
	}
	return streams, rows.Error()
}
