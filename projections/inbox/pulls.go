package inbox

import (
	"bytes"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/internal/keylist"
)

// An owner is pulled in a partition if too many users of the partition follow the owner or boards
// of the owner (regions.go). The owner's pins are then not pushed to the inboxes of these users.
// Instead, each of these users has pull rows. A pull row names an outbox, which the pages of the
// user merge with the inbox. A reader who follows the owner explicitly has one pull row, which
// names the owner. A reader who follows only boards of the owner has one pull row for each board.
//
// Invariant: an inbox has every pin above its floor that the reader sees, unless a pull row names
// an outbox with the pin. A pull row names only an owner or board that the reader follows, except
// between the steps of an event that is folded in steps ([projections.Batch.Step]).

// pullKey appends the key of a pull row: for an owner, or for one board of the owner if board is
// not nil.
func pullKey(dst []byte, reader, owner string, board *string) []byte {
	dst = projections.AppendKey(dst, tagPull, reader, owner)
	if board != nil {
		dst = events.AppendID(dst, *board)
	}
	return dst
}

// cutPullKey decodes what follows the reader in the key of a pull row. board is nil if the row
// names only the owner.
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
	partition := events.ShardOf(reader).Partition()
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, partition))
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

// setPullRowsOfUser writes all pull rows of a user for an owner, or deletes them if present is
// false. r is the user's row in the region of the owner.
func (f *Inbox) setPullRowsOfUser(r graph.RegionRow, owner string, present bool) error {
	reader, _, err := events.CutID(r.Key)
	if err != nil {
		return err
	}

	// If the owner ceases to be pulled, the inbox lacks the pins that were not pushed until now. If
	// the owner begins to be pulled, the inbox can stay: it may have pins of a pulled outbox.
	if !present {
		f.dropInbox(r.Key)
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

// eachFollowedBoard calls do with the boards of an owner that a reader follows. It collects the
// boards before it calls do, so that do may write to the batch. No fold may write to the batch
// while it iterates over rows.
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

// applyRelationChange updates pull rows and inboxes after a change of a reader's relation to an
// owner: the reader began or ceased to follow the owner or boards of the owner, or the relation was
// deleted. The embedded graph calls applyRelationChange after it has written the change, and after
// a crash may call it again with the same change. applyRelationChange must not call
// [projections.Batch.Step] ([graph.Graph.Observe]).
func (f *Inbox) applyRelationChange(c graph.FollowChange) error {
	if err := f.updatePullRows(&c); err != nil {
		return err
	}

	// c.Boards has only boards whose follow began or ended with the event.
	begins := c.FollowsAfter && !c.FollowedBefore
	for _, board := range c.Boards {
		begins = begins || board.FollowsAfter
	}

	// The inbox of a reader who begins to follow lacks pins that were created before. Also, no
	// inbox may keep sort keys of an erased user (I12), and every relation of an erased user ends
	// with NoFacts set.
	if begins || c.NoFacts {
		f.dropInbox(events.AppendID(nil, c.Follower))
	}

	// If the owner is being erased, do nothing here: once all relations have ended, eraseUser
	// deletes the rows that say where the owner is pulled.
	if f.ev.Kind == events.UserDeleted && f.ev.User == c.Owner {
		return nil
	}
	return f.updatePulledOwner(c.Follower, c.Owner, begins)
}

// updatePullRows updates the pull rows of a reader for an owner after a change of the relation.
func (f *Inbox) updatePullRows(c *graph.FollowChange) error {
	switch {
	case c.FollowsAfter && !c.FollowedBefore:
		// The explicit follow begins. Until now, the reader followed at most boards of the owner.
		// The pull row that names the owner replaces the rows that name boards. pullKey without a
		// board is the prefix of all these rows.
		relation, err := f.queries.Visibility(c.Follower, c.Owner)
		if err != nil {
			return err
		}
		if relation.Boards {
			if err := f.deletePullRows(pullKey(nil, c.Follower, c.Owner, nil)); err != nil {
				return err
			}
		}
		return f.addPullRowIfPulled(c.Follower, c.Owner, nil)

	case c.FollowsAfter:
		// The explicit follow goes on. The pushes or the pull row of the owner cover the pins of
		// all boards of the owner, and pages leave out the pins of excluded boards.
		return nil

	case c.FollowedBefore:
		// The explicit follow ends. The reader may still follow boards of the owner.
		f.setPullRow(c.Follower, c.Owner, nil, false)
		return f.eachFollowedBoard(c.Follower, c.Owner, func(board string) error {
			return f.addPullRowIfPulled(c.Follower, c.Owner, &board)
		})
	}

	// The reader followed at most boards of the owner, both before the event and after it.
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

// deletePullRows deletes the pull rows with a prefix. Unlike [Inbox.deleteRows], it never calls
// [projections.Batch.Step]. After a crash between two steps, the graph would find the follow in its
// rows and not report the change again, so the pull row of the owner would never be written.
func (f *Inbox) deletePullRows(prefix []byte) error {
	var keys keylist.List // nothing may be written while the iterator is open
	it := f.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		keys.Add(it.Key())
	}
	if err := it.Close(); err != nil {
		return err
	}
	for i := range keys.Len() {
		f.batch.Delete(keys.At(i))
	}
	return nil
}

// pulledOutboxes returns streams for the outboxes that the reader's pull rows name.
func (w *feedIterator) pulledOutboxes() (streams []*stream, err error) {
	prefix := projections.AppendKey(nil, tagPull, w.feed.Reader)

	// Use the iterator of the merge, which saves another one. This does not disturb the merge,
	// because the merge seeks to a key each time before it reads rows.
	rows := w.merge.rows
	for ok := rows.SeekGE(prefix); ok && bytes.HasPrefix(rows.Key(), prefix); ok = rows.Next() {
		owner, board, err := cutPullKey(rows.Key()[len(prefix):])
		if err != nil {
			return nil, err
		}
		streams = append(streams, w.queries.outboxStream(&w.keys, owner, board))
	}
	return streams, rows.Error()
}
