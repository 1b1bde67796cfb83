package inbox

import (
	"bytes"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// A pull row says that the pages of a reader include an outbox beside the inbox, because the owner has too many followers, and posts are
// not pushed. There is one row for the owner if the reader follows the owner explicitly, or else one for each board that the reader
// follows.
//
// Invariant: an inbox has every pin above its floor that the reader sees, unless a pull row leads to the pin. A pull row leads to
// a user whom the reader no longer follows only while an event is folded in steps.

func pullKey(dst []byte, reader, owner string, board *string) []byte {
	dst = projections.AppendKey(dst, tagPull, reader, owner)
	if board != nil {
		dst = events.AppendID(dst, *board)
	}
	return dst
}

// cutPull decodes the key of a pull row, behind the reader.
func cutPullKey(rest []byte) (owner string, board *string, err error) {
	if owner, rest, err = events.CutID(rest); err == nil && len(rest) > 0 {
		var b string
		b, rest, err = events.CutID(rest)
		board = &b
	}
	if err == nil && len(rest) != 0 {
		err = errRow("pull", rest)
	}
	return owner, board, err
}

// pull writes a pull row for an outbox that a reader begins to follow, if the owner is pulled in the reader's partition.
func (f *Inbox) addPullRowIfPulled(reader, owner string, board *string) error {
	pulled, err := f.hasRow(pulledOwnerKey(f.key[:0], owner, events.ShardOf(reader).Partition()))
	if err == nil && pulled {
		f.setPullRow(reader, owner, board, true)
	}
	return err
}

func (f *Inbox) setPullRow(reader, owner string, board *string, is bool) {
	f.key = pullKey(f.key[:0], reader, owner, board)
	if is {
		f.batch.Set(f.key, nil)
	} else {
		f.batch.Delete(f.key)
	}
}

// repull writes the pull rows of a user to an owner, or removes them. Without them the inbox lacks what was not pushed.
func (f *Inbox) setPullRowsOfUser(r graph.Related, owner string, is bool) error {
	reader, _, err := events.CutID(r.Key)
	if err != nil {
		return err
	}
	if !is {
		f.dropInbox(r.Key)
	}
	if r.Follows {
		f.setPullRow(reader, owner, nil, is)
		return nil
	}
	return f.eachFollowedBoard(reader, owner, func(board string) error {
		f.setPullRow(reader, owner, &board, is)
		return nil
	})
}

// eachBoard calls do with the boards of an owner that a reader follows. do may write.
func (f *Inbox) eachFollowedBoard(reader, owner string, do func(board string) error) error {
	var boards []string
	err := f.queries.EachFollowedBoardOf(reader, owner, func(board string) error { boards = append(boards, board); return nil })
	for i := 0; err == nil && i < len(boards); i++ {
		err = do(boards[i])
	}
	return err
}

// relationChanged is called by the graph after it has written that a reader began or ceased to follow. An inbox lacks what was pinned
// before its reader followed, and must not keep pins of a user who was erased (I12), so it is dropped.
func (f *Inbox) applyRelationChange(c graph.Change) error {
	if err := f.updatePullRows(&c); err != nil {
		return err
	}
	grows := c.Is && !c.Was
	for _, b := range c.Boards {
		grows = grows || b.Is
	}
	if grows || c.Gone {
		f.dropInbox(events.AppendID(nil, c.Follower))
	}
	if f.ev.Kind == events.UserDeleted && f.ev.User == c.Owner {
		return nil // the rows that say where the owner is pulled go at the end
	}
	return f.updatePulledOwner(c.Follower, c.Owner, grows)
}

// followChanged keeps the pull rows of a reader.
func (f *Inbox) updatePullRows(c *graph.Change) error {
	switch {
	case c.Is && !c.Was:
		// Before, the reader can only have followed boards of the owner. The row of the owner now takes the place of theirs.
		s, err := f.queries.Visibility(c.Follower, c.Owner)
		if err == nil && s.Boards {
			err = f.deleteRows(pullKey(nil, c.Follower, c.Owner, nil))
		}
		if err != nil {
			return err
		}
		return f.addPullRowIfPulled(c.Follower, c.Owner, nil)
	case c.Is:
		return nil // all boards were pushed before, also those that were not followed
	case c.Was:
		f.setPullRow(c.Follower, c.Owner, nil, false)
		return f.eachFollowedBoard(c.Follower, c.Owner, func(board string) error { return f.addPullRowIfPulled(c.Follower, c.Owner, &board) })
	}
	for i := range c.Boards {
		b := &c.Boards[i]
		if !b.Is {
			f.setPullRow(c.Follower, c.Owner, &b.Board, false)
			continue
		}
		if err := f.addPullRowIfPulled(c.Follower, c.Owner, &b.Board); err != nil {
			return err
		}
	}
	return nil
}

// pulls returns the outboxes that a reader's pull rows name.
func (w *feedIterator) pulledOutboxes() (streams []*stream, err error) {
	prefix := projections.AppendKey(nil, tagPull, w.feed.Reader)
	it := w.merge.rows
	for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		owner, board, err := cutPullKey(it.Key()[len(prefix):])
		if err != nil {
			return nil, err
		}
		streams = append(streams, w.queries.outboxStream(&w.keys, owner, board))
	}
	return streams, it.Error()
}
