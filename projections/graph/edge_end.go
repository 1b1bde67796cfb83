package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// txn folds one event into the store. It holds the event, the batch that the rows are read from and written to, and buffers
// that are reused from event to event.
type txn struct {
	batch *projections.Batch
	ev    *events.Event
	// order is the place of the event in the order of facts.
	order factOrder
	// eventCopy is what ev points to. Copying the event into the txn costs less than allocating it for each call of Apply.
	eventCopy events.Event

	// key, value and scratchEnd are buffers. The batch copies keys and values, so key and value may be reused after every
	// call of the batch. A txn works on one end of an edge at a time, so one scratchEnd is enough.
	key, value []byte
	scratchEnd edgeEnd

	// outEndsOnly folds only out-ends, without lists and counts (see [NewOutEnds]).
	outEndsOnly bool
	// maxShortList is the largest number of edges of a user whose list of follows is not stored (following_list.go).
	maxShortList int64
	// observe is called with every change of a follow at the out-end. It is nil unless another projection embeds the graph.
	observe func(FollowChange) error
}

// holdsHome reports whether this store has the partition of a user, so that it must write the rows at the user's home.
func (t *txn) holdsHome(user string) bool { return t.batch.Holds(user) }

// setOrDelete writes a row, or deletes the row if the value is empty. A row without facts must not stay: rows of equal
// meaning must be equal bytes (I13), and after the deletion of a user nothing may name the user (I12).
func (t *txn) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		t.batch.Delete(key)
		return
	}
	t.batch.Set(key, value)
}

// endKind says at which end an edge is stored.
type endKind uint8

const (
	// outEnd is at the home of the follower.
	outEnd endKind = iota
	// inEnd is at the home of the followee.
	inEnd
)

// edgeEnd is an edge at one of its ends while one event changes it: the facts before and after the event, and the board
// edges that change with them. Each end has all facts and derives what holds by the same functions, so it never asks the
// other end (I13). Events change only facts; [txn.writeEnd] turns the difference into rows and counts.
type edgeEnd struct {
	end                endKind
	follower, followee string
	before, after      edge
	boardChanges       []boardEdgeChange
	// hasAllBoards is set if boardChanges has every board edge of the two users, and not only the one that the event is
	// about. What depends on all of them can then be derived without reading rows.
	hasAllBoards bool
}

// boardEdgeChange is a board edge before and after the event: its facts, and the relation that holds by them.
type boardEdgeChange struct {
	board                         string
	before, after                 boardEdge
	relationBefore, relationAfter relation
}

// applyBothEnds calls change for each end of the edge that this store holds. The out-end comes last, because observers are
// called from it and may read the in-end.
func (t *txn) applyBothEnds(follower, followee string, change func(*txn, *edgeEnd) error) error {
	if !t.outEndsOnly {
		if err := t.applyOneEnd(inEnd, follower, followee, change); err != nil {
			return err
		}
	}
	return t.applyOneEnd(outEnd, follower, followee, change)
}

// applyOneEnd reads one end of the edge and calls change with it, if this store holds that end.
func (t *txn) applyOneEnd(
	end endKind, follower, followee string, change func(*txn, *edgeEnd) error,
) error {
	home := follower
	if end == inEnd {
		home = followee
	}
	if !t.holdsHome(home) {
		return nil
	}

	facts, err := readEdge(t.batch, t.key[:0], end, follower, followee)
	if err != nil {
		return err
	}

	e := &t.scratchEnd
	*e = edgeEnd{
		end:          end,
		follower:     follower,
		followee:     followee,
		before:       facts,
		after:        facts,
		boardChanges: e.boardChanges[:0],
	}
	return change(t, e)
}

// readEdge returns the facts of an edge at one end. The zero edge means that the two users have none. scratch is a buffer
// for the key.
func readEdge(
	r projections.Reader, scratch []byte, end endKind, follower, followee string,
) (e edge, err error) {
	tag := tagEdge
	if end == inEnd {
		tag = tagInEdge
	}
	row, ok, err := r.Get(end.appendEdgeKey(scratch, tag, follower, followee))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decodeRow(row)
}

// readBoardEdge is [readEdge] for a board edge.
func readBoardEdge(
	r projections.Reader, scratch []byte, end endKind, follower, followee, board string,
) (e boardEdge, err error) {
	key := events.AppendID(end.appendBoardEdgePrefix(scratch, follower, followee), board)
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return e, err
	}
	return e, e.decodeRow(row)
}

// eachBoardEdge calls do with every stored board edge of this end. do must not write, because an iterator is open.
func (t *txn) eachBoardEdge(e *edgeEnd, do func(board string, facts boardEdge)) error {
	prefix := e.end.appendBoardEdgePrefix(nil, e.follower, e.followee)
	it := t.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		board, _, err := events.CutID(it.Key()[len(prefix):])
		var facts boardEdge
		if err == nil {
			err = facts.decodeRow(it.Value())
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		do(board, facts)
	}
	return it.Close()
}

// loadBoardChanges lists all board edges of this end as changes. This is needed when facts about the owner change, because
// each board relation depends on those, too: a block or an unfollow of the owner ends it.
func (t *txn) loadBoardChanges(e *edgeEnd) error {
	e.boardChanges = e.boardChanges[:0]
	e.hasAllBoards = true
	if !e.before.hasBoards {
		return nil
	}

	return t.eachBoardEdge(e, func(board string, facts boardEdge) {
		e.boardChanges = append(e.boardChanges, boardEdgeChange{
			board:          board,
			before:         facts,
			after:          facts,
			relationBefore: facts.relation(&e.before),
			relationAfter:  facts.relation(&e.after),
		})
	})
}

// writeWithBoards writes an end whose facts about the owner have changed, with all board relations that change with them.
func (t *txn) writeWithBoards(e *edgeEnd) error {
	if err := t.loadBoardChanges(e); err != nil {
		return err
	}
	return t.writeEnd(e)
}

// eraseEnd removes an end with its board edges, and with its entries in lists and counts. Its cost grows with the number of
// board edges.
func (t *txn) eraseEnd(e *edgeEnd) error {
	if err := t.loadBoardChanges(e); err != nil {
		return err
	}
	e.after = edge{}
	e.clearBoardFacts()
	return t.writeEnd(e)
}

// clearBoardFacts makes every change remove its board edge.
func (e *edgeEnd) clearBoardFacts() {
	for i := range e.boardChanges {
		e.boardChanges[i].after = boardEdge{}
		e.boardChanges[i].relationAfter = relation{}
	}
}

// writeEnd turns the difference between the facts before and after into rows and counts. Relations, the lists that show
// them and the counts change together here and nowhere else (I7).
func (t *txn) writeEnd(e *edgeEnd) error {
	// Any fact about the two users may have ended the settings of the follow.
	e.after.dropEndedSettings()

	explicitBefore := e.before.explicitState()
	explicitAfter := e.after.explicitState()

	if err := t.updateImplicit(e, explicitAfter.holds); err != nil {
		return err
	}

	if t.batch.BackfillsClosed() && !e.after.hasEffect() {
		if err := t.dropUnusedFacts(e); err != nil {
			return err
		}
	}

	for i := range e.boardChanges {
		err := t.writeBoardEdge(e, &e.boardChanges[i], explicitBefore.holds, explicitAfter.holds)
		if err != nil {
			return err
		}
	}

	if e.end == inEnd {
		return t.writeInEnd(e, explicitBefore, explicitAfter)
	}
	return t.writeOutEnd(e, explicitBefore, explicitAfter)
}

// updateImplicit sets after.implicitSince to the earliest board follow that holds. Usually the changes suffice. If the board
// follow that was the earliest changes, all the others must be read to find the next one.
func (t *txn) updateImplicit(e *edgeEnd, explicit bool) error {
	after := &e.after
	if !after.hasBoards || explicit {
		after.implicitSince = 0
		return nil
	}

	if e.hasAllBoards {
		after.implicitSince = 0
	}
	for i := range e.boardChanges {
		c := &e.boardChanges[i]
		wasFollow := c.relationBefore.kind == relationFollow
		wasEarliest := wasFollow && factOrder(c.relationBefore.since)+1 == after.implicitSince
		if !e.hasAllBoards && wasEarliest && c.relationBefore != c.relationAfter {
			return t.recomputeImplicit(e, c)
		}
		after.lowerImplicit(c.relationAfter)
	}
	return nil
}

// recomputeImplicit finds the earliest board follow by reading all board edges. The changed one is not written yet, so its
// row is ignored and the new relation is used instead.
func (t *txn) recomputeImplicit(e *edgeEnd, changed *boardEdgeChange) error {
	e.after.implicitSince = 0
	e.after.lowerImplicit(changed.relationAfter)
	return t.eachBoardEdge(e, func(board string, facts boardEdge) {
		if board != changed.board {
			e.after.lowerImplicit(facts.relation(&e.after))
		}
	})
}

// dropUnusedFacts drops the facts of an end by which nothing holds any more. They were kept only so that late history would
// lose against them, and none can come once all backfills are closed.
func (t *txn) dropUnusedFacts(e *edgeEnd) error {
	// The board edges go, too. Those that the event does not change must be read for that.
	if e.after.hasBoards && !e.hasAllBoards {
		known := len(e.boardChanges)
		var knownBoard string
		if known > 0 {
			knownBoard = e.boardChanges[0].board
		}
		err := t.eachBoardEdge(e, func(board string, facts boardEdge) {
			if known == 0 || board != knownBoard {
				e.boardChanges = append(e.boardChanges, boardEdgeChange{board: board, before: facts})
			}
		})
		if err != nil {
			return err
		}
	}

	e.after = edge{}
	e.clearBoardFacts()
	return nil
}

// writeBoardEdge writes a board edge, the lists that show it, and the row from which the deletion of its board finds it.
// explicitBefore and explicitAfter say whether the follower follows the owner of the board explicitly.
func (t *txn) writeBoardEdge(e *edgeEnd, c *boardEdgeChange, explicitBefore, explicitAfter bool) error {
	if c.before != c.after {
		t.key = e.end.appendBoardEdgePrefix(t.key[:0], e.follower, e.followee)
		t.key = events.AppendID(t.key, c.board)
		t.value = t.value[:0]
		if c.after != (boardEdge{}) {
			t.value = c.after.appendRow(t.value)
		}
		t.setOrDelete(t.key, t.value)
	}

	if e.end == inEnd {
		return t.writeInBoardEdge(e, c, explicitBefore, explicitAfter)
	}
	t.writeOutBoardEdge(e, c)
	return nil
}

// writeEdge writes the row of the edge if its facts have changed.
func (t *txn) writeEdge(e *edgeEnd, tag projections.Tag) {
	if e.before == e.after {
		return
	}

	t.key = e.end.appendEdgeKey(t.key[:0], tag, e.follower, e.followee)
	t.value = t.value[:0]
	if e.after != (edge{}) {
		t.value = e.after.appendRow(t.value)
	}
	t.setOrDelete(t.key, t.value)
}

// lengthChange returns by how much the length of a list changes, given whether it had an entry before and has it after.
func lengthChange(before, after bool) int64 {
	switch {
	case after && !before:
		return 1
	case before && !after:
		return -1
	}
	return 0
}

// moveListRow updates the entry of user in a list of another user, owner. The time is part of the key, so a change of the
// time deletes one row and writes another. The settings of a follow are the value of the row.
func (t *txn) moveListRow(tag projections.Tag, owner, user string, before, after state) {
	if before == after {
		return
	}
	if before.holds && (!after.holds || before.since != after.since) {
		t.key = listKey(t.key[:0], tag, owner, before.since, user)
		t.batch.Delete(t.key)
	}
	if after.holds {
		t.key = listKey(t.key[:0], tag, owner, after.since, user)
		t.batch.Set(t.key, settingsValue(after.settings))
	}
}

// settingsValue returns the value of a list entry with settings. Most entries have none, and then no value.
func settingsValue(s events.FollowSettings) []byte {
	if s == 0 {
		return nil
	}
	return []byte{byte(s)}
}

// decodeSettingsValue reads what settingsValue has written.
func decodeSettingsValue(value []byte) (events.FollowSettings, error) {
	if len(value) == 0 {
		return 0, nil
	}
	s := events.FollowSettings(value[0])
	if len(value) > 1 || s == 0 || s > events.AllFollowSettings {
		return 0, rowError("settings", value)
	}
	return s, nil
}

// moveBoardListRow updates the entry of a board relation in the list for its kind. appendKey appends the key of the entry.
func (t *txn) moveBoardListRow(c *boardEdgeChange, appendKey func(dst []byte, r relation) []byte) {
	if c.relationBefore == c.relationAfter {
		return
	}
	if c.relationBefore.kind != relationNone {
		t.key = appendKey(t.key[:0], c.relationBefore)
		t.batch.Delete(t.key)
	}
	if c.relationAfter.kind != relationNone {
		t.key = appendKey(t.key[:0], c.relationAfter)
		t.batch.Set(t.key, nil)
	}
}
