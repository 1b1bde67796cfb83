package inbox

import (
	"bytes"
	"container/heap"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// A pull row says that the pages of a reader include an outbox beside the inbox. Without a time it holds always: the owner has too many
// followers, and posts are not pushed. With a time it holds for pins that are not newer: the inbox may lack those, because the reader
// began to follow then. A page opens such an outbox only when it gets down to that time. There is one row for the owner if the reader
// follows the owner explicitly, or else one for each board that the reader follows.
//
// Invariant: an inbox has every pin above its floor that the reader sees, unless a pull row leads to the pin. A pull row leads to
// a user whom the reader no longer follows only while an event is folded in steps.

// The value of a pull row, until, is empty if the outbox is always read, or a time as in a sort key.

func untilNow(now events.Micros) []byte { return appendNewestFirst(nil, now) }

func pullKey(dst []byte, reader, owner string, board *string) []byte {
	dst = projections.AppendKey(dst, tagPull, reader, owner)
	if board != nil {
		dst = events.AppendID(dst, *board)
	}
	return dst
}

// cutPull decodes a pull row, given the key behind the reader and the value.
func cutPull(rest, value []byte) (owner string, board *string, err error) {
	if owner, rest, err = events.CutID(rest); err == nil && len(rest) > 0 {
		var b string
		b, rest, err = events.CutID(rest)
		board = &b
	}
	if err == nil && (len(rest) != 0 || len(value) != 0 && len(value) != 8) {
		err = errRow("pull", value)
	}
	return owner, board, err
}

// pull writes a pull row for an outbox that a reader begins to follow: without a time if the owner is pulled in the reader's partition, or
// else with the present one. The latter only if the reader has an
// inbox: without one, all outboxes are merged for each page.
func (f *Inbox) pull(reader, owner string, board *string) error {
	pulled, err := f.has(pulledKey(f.key[:0], owner, events.ShardOf(reader).Partition()))
	if err != nil {
		return err
	}
	f.value = f.value[:0]
	if !pulled {
		r, ok, err := readReader(f.b, projections.AppendKey(f.key[:0], tagReader, reader))
		if err != nil || !ok || !r.at(f.horizon).ready {
			return err
		}
		f.value = appendNewestFirst(f.value, f.b.LogTime())
	}
	f.key = pullKey(f.key[:0], reader, owner, board)
	f.b.Set(f.key, f.value)
	return nil
}

func (f *Inbox) endPull(reader, owner string, board *string) {
	f.key = pullKey(f.key[:0], reader, owner, board)
	f.b.Delete(f.key)
}

// repull gives all pull rows of a user to an owner the same value.
func (f *Inbox) repull(r graph.Related, owner string, until []byte) error {
	reader, _, err := events.CutID(r.Key)
	if err != nil {
		return err
	}
	if r.Follows {
		f.key = pullKey(f.key[:0], reader, owner, nil)
		f.b.Set(f.key, until)
		return nil
	}
	return f.eachBoard(reader, owner, func(board string) error {
		f.key = pullKey(f.key[:0], reader, owner, &board)
		f.b.Set(f.key, until)
		return nil
	})
}

// eachBoard calls do with the boards of an owner that a reader follows. do may write.
func (f *Inbox) eachBoard(reader, owner string, do func(board string) error) error {
	var boards []string
	err := f.queries.EachFollowedBoardOf(reader, owner, func(board string) error { boards = append(boards, board); return nil })
	for i := 0; err == nil && i < len(boards); i++ {
		err = do(boards[i])
	}
	return err
}

// relationChanged is called by the graph after it has written that a reader began or ceased to follow.
func (f *Inbox) relationChanged(c graph.Change) error {
	if err := f.followChanged(&c); err != nil {
		return err
	}
	if c.Gone {
		// No row leads from the owner to this reader any more, so the deletion of the owner would not find these entries (I12).
		f.forget(c.Follower, c.Owner)
	}
	if f.ev.Kind == events.UserDeleted && f.ev.User == c.Owner {
		return nil // the rows that say where the owner is pulled go at the end
	}
	grows := c.Is && !c.Was
	for _, b := range c.Boards {
		grows = grows || b.Is
	}
	return f.balance(c.Follower, c.Owner, grows)
}

// followChanged keeps the pull rows of a reader.
func (f *Inbox) followChanged(c *graph.Change) error {
	switch {
	case c.Is && !c.Was:
		// Before, the reader can only have followed boards of the owner. The row of the owner now takes the place of theirs.
		s, err := f.queries.Visibility(c.Follower, c.Owner)
		if err == nil && s.Boards {
			err = f.dropBoardPulls(c.Follower, c.Owner)
		}
		if err != nil {
			return err
		}
		return f.pull(c.Follower, c.Owner, nil)
	case c.Is:
		return nil // all boards were pushed before, also those that were not followed
	case c.Was:
		f.endPull(c.Follower, c.Owner, nil)
		return f.eachBoard(c.Follower, c.Owner, func(board string) error { return f.pull(c.Follower, c.Owner, &board) })
	}
	for i := range c.Boards {
		b := &c.Boards[i]
		if !b.Is {
			f.endPull(c.Follower, c.Owner, &b.Board)
			continue
		}
		if err := f.pull(c.Follower, c.Owner, &b.Board); err != nil {
			return err
		}
	}
	return nil
}

func (f *Inbox) dropBoardPulls(reader, owner string) error {
	return f.dropPullsIf(pullKey(nil, reader, owner, nil), func([]byte) bool { return true })
}

// dropPulls removes the pull rows of a reader whose time is at or below the floor: there all outboxes are merged anyway.
func (f *Inbox) dropPulls(name string, r reader) error {
	return f.dropPullsIf(projections.AppendKey(nil, tagPull, name), func(until []byte) bool {
		return len(until) > 0 && bytes.Compare(until, r.floor[:]) >= 0
	})
}

func (f *Inbox) dropPullsIf(prefix []byte, drop func(until []byte) bool) error {
	keys := f.takeKeys()
	defer f.giveKeys(keys)
	it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		if drop(it.Value()) {
			keys.add(it.Key())
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	for i := range keys.len() {
		f.b.Delete(keys.at(i))
	}
	return nil
}

// pending is an outbox that is opened when a walk reaches a sort key: what its pull row holds, and the row's key behind the reader.
type pending struct{ until, row []byte }

// pendings is a heap, the next one to open first. There may be as many as the reader has followed lately, of which a page opens few.
type pendings []pending

// take removes the first.
func (p *pendings) take() pending {
	return heap.Pop(p).(pending) //nolint:forcetypeassert // it holds nothing else
}

// Len is part of heap.Interface, as are the next four.
func (p *pendings) Len() int { return len(*p) }

func (p *pendings) Less(i, j int) bool { return bytes.Compare((*p)[i].until, (*p)[j].until) < 0 }
func (p *pendings) Swap(i, j int)      { (*p)[i], (*p)[j] = (*p)[j], (*p)[i] }

// Push adds an outbox.
func (p *pendings) Push(x any) { *p = append(*p, x.(pending)) } //nolint:forcetypeassert // it holds nothing else

// Pop removes the last.
func (p *pendings) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

// pulls reads the pull rows of a reader who has an inbox. It returns the outboxes that are always read. The others, if they matter above
// the floor, go to later, and are opened when the walk reaches them.
func (w *walk) pulls() (always []*stream, err error) {
	prefix := projections.AppendKey(nil, tagPull, w.feed.Reader)
	it := w.merge.it
	for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		row, until := it.Key()[len(prefix):], it.Value()
		if len(until) > 0 && bytes.Compare(until, w.floor) >= 0 {
			continue
		}
		if len(until) > 0 {
			w.later = append(w.later, pending{w.keys.clone(until), w.keys.clone(row)})
			continue
		}
		owner, board, err := cutPull(row, nil)
		if err != nil {
			return nil, err
		}
		always = append(always, w.q.outboxStream(&w.keys, owner, board))
	}
	heap.Init(&w.later)
	return always, nil
}
