package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// An edge is the facts of one user, the follower, about another user, the followee: follows,
// blocks, mutes. A board edge is the facts of the follower about one board of the followee. Each
// edge is stored at two ends: the out-end at the home of the follower, and the in-end at the home
// of the followee. The home of a user is the user's partition, which this store may not hold. The
// package doc explains these words.

// eventFold folds events into the rows of a store, one event after the other. It has the current
// event and the batch for its rows, settings, and buffers.
type eventFold struct {
	batch *projections.Batch
	ev    *events.Event
	// order says which of two facts is later: the one with the greater order.
	order factOrder
	// eventCopy is what ev points to. If ev pointed to the argument of Apply, each call would
	// allocate the argument.
	eventCopy events.Event

	// key, value and edgeBuffer are buffers. The batch copies keys and values, so key and value may
	// be reused after every call of the batch. Only one end of an edge is changed at a time, so one
	// edgeBuffer is enough.
	key, value []byte
	edgeBuffer edgeEnd

	// outEndsOnly is set for [NewOutEnds]: only out-ends are stored, without lists and counts.
	outEndsOnly bool
	// maxShortList is a number of edges. The list of a user's follows is stored only if the user
	// has more edges (following_list.go).
	maxShortList int64
	// observe is the function given to [Graph.Observe], or nil.
	observe func(FollowChange) error
}

// holdsHome reports whether this store holds the partition of a user, and so the rows at the user's
// home.
func (t *eventFold) holdsHome(user string) bool { return t.batch.Holds(user) }

// setOrDeleteRow writes the row of an edge or board, or deletes the row if the value is empty,
// which means that there are no facts. A row without facts must not stay: stores with the same
// facts must have the same bytes, and nothing may name a deleted user (docs/invariants.md, I13 and
// I12).
func (t *eventFold) setOrDeleteRow(key, value []byte) {
	if len(value) == 0 {
		t.batch.Delete(key)
		return
	}
	t.batch.Set(key, value)
}

// endKind is one of the two ends of an edge.
type endKind uint8

const (
	// outEnd is at the home of the follower.
	outEnd endKind = iota
	// inEnd is at the home of the followee.
	inEnd
)

// edgeEnd is the change of an edge, at one of its ends, by one event. The event changes facts in
// after. Then [eventFold.writeEnd] derives what follows from the facts, and writes the difference
// between before and after as rows and counts. Both ends have all facts of the two users about
// follows, blocks and boards, so neither end reads the rows of the other (I13).
type edgeEnd struct {
	end                endKind
	follower, followee string
	before, after      edge
	// boardChanges has the board edge that the event is about, if it is about one, or all board
	// edges of the follower to boards of the followee. hasAllBoards says that it has all. If
	// hasAllBoards is not set, boardChanges has at most one element.
	boardChanges []boardEdgeChange
	hasAllBoards bool
}

// boardEdgeChange is a board edge before and after the event. A relation, such as a board follow,
// is derived from the facts of the board edge and those of the edge.
type boardEdgeChange struct {
	board                         string
	before, after                 boardEdge
	relationBefore, relationAfter relation
}

// applyBothEnds calls change for each end of the edge that this store holds. change must write the
// end. The out-end comes last, because writing it calls the observer, which may read the in-end if
// this store holds that.
func (t *eventFold) applyBothEnds(follower, followee string, change func(*eventFold, *edgeEnd) error) error {
	if !t.outEndsOnly {
		if err := t.applyOneEnd(inEnd, follower, followee, change); err != nil {
			return err
		}
	}
	return t.applyOneEnd(outEnd, follower, followee, change)
}

// applyOneEnd reads one end of the edge and calls change with it, if this store holds that end.
// change must write the end. Callers pass a method expression for change, which allocates no
// closure.
func (t *eventFold) applyOneEnd(
	end endKind, follower, followee string, change func(*eventFold, *edgeEnd) error,
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

	e := &t.edgeBuffer
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

// readEdge returns an edge as it is stored at one end. It returns the zero edge if nothing is
// stored. scratch is a buffer for the key.
func readEdge(
	r projections.Reader, scratch []byte, end endKind, follower, followee string,
) (e edge, err error) {
	row, ok, err := r.Get(end.appendEdgeKey(scratch, follower, followee))
	if err != nil || !ok {
		return e, err
	}
	err = e.decodeRow(row)
	return e, err
}

// readBoardEdge returns a board edge as it is stored at one end. It returns the zero boardEdge if
// nothing is stored.
func readBoardEdge(
	r projections.Reader, scratch []byte, end endKind, follower, followee, board string,
) (e boardEdge, err error) {
	key := events.AppendID(end.appendBoardEdgePrefix(scratch, follower, followee), board)
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return e, err
	}
	err = e.decodeRow(row)
	return e, err
}

// eachBoardEdge calls do with every board edge of the follower to a board of the followee, as it is
// stored at the end e. It does not see e.boardChanges. The function do must not write rows, because
// an iterator is open.
func (t *eventFold) eachBoardEdge(e *edgeEnd, do func(board string, facts boardEdge)) error {
	prefix := e.end.appendBoardEdgePrefix(nil, e.follower, e.followee)
	it := t.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		board, err := decodeID(it.Key()[len(prefix):])
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

// loadBoardChanges reads all board edges of the follower to boards of the followee into
// e.boardChanges. This is needed when the facts of the edge change, because every board relation
// depends on them, too: an unfollow of the followee, for example, ends all board follows.
func (t *eventFold) loadBoardChanges(e *edgeEnd) error {
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

// writeWithBoards writes an end whose edge has changed facts on which board relations depend. Its
// cost grows with the number of board edges.
func (t *eventFold) writeWithBoards(e *edgeEnd) error {
	if err := t.loadBoardChanges(e); err != nil {
		return err
	}
	return t.writeEnd(e)
}

// eraseEnd deletes an end with its board edges, removes their entries from lists, and subtracts
// them from counts. Its cost grows with the number of board edges.
func (t *eventFold) eraseEnd(e *edgeEnd) error {
	if err := t.loadBoardChanges(e); err != nil {
		return err
	}
	e.after = edge{}
	e.clearBoardFacts()
	return t.writeEnd(e)
}

// clearBoardFacts sets e.boardChanges so that writeEnd deletes the board edges in it.
func (e *edgeEnd) clearBoardFacts() {
	for i := range e.boardChanges {
		e.boardChanges[i].after = boardEdge{}
		e.boardChanges[i].relationAfter = relation{}
	}
}

// writeEnd writes an end after an event has changed facts in e.after. It first updates what is
// derived from the facts: settings, the implicit follow, and whether facts are still needed. Then
// it writes the edge and its board edges, and changes lists and counts by the difference between
// before and after. It is the only function that writes the relations of an end, so lists and
// counts always agree (I7).
func (t *eventFold) writeEnd(e *edgeEnd) error {
	// The event may be an unfollow or a block, which ends the settings of the follow, or history
	// that arrives after the settings.
	e.after.dropEndedSettings()

	explicitBefore := e.before.explicitState()
	explicitAfter := e.after.explicitState()

	if err := t.updateImplicit(e, explicitAfter.holds); err != nil {
		return err
	}

	// Facts without effect are only needed to order backfills. The closing of all backfills is an
	// event of the log, so all stores drop such facts at the same events.
	if t.batch.BackfillsClosed() && !e.after.hasEffect() {
		if err := t.dropFactsWithoutEffect(e); err != nil {
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

// updateImplicit sets after.implicitSince, which says since when the follower follows any board of
// the followee. It is 0 if there is no board follow, or if the follower follows the followee
// explicitly. Usually e.boardChanges suffices. Only if the earliest board follow changes must all
// board edges be read, to find the next one.
func (t *eventFold) updateImplicit(e *edgeEnd, explicit bool) error {
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
		// An order is a time plus one, because an order of 0 means that there is none.
		wasEarliest := wasFollow && factOrder(c.relationBefore.since)+1 == after.implicitSince
		if !e.hasAllBoards && wasEarliest && c.relationBefore != c.relationAfter {
			// Without hasAllBoards, c is the only element of boardChanges.
			return t.recomputeImplicit(e, c)
		}
		after.lowerImplicit(c.relationAfter)
	}
	return nil
}

// recomputeImplicit sets after.implicitSince by reading all board edges. The changed board edge is
// not written yet, so recomputeImplicit ignores its row and uses changed.relationAfter instead.
func (t *eventFold) recomputeImplicit(e *edgeEnd, changed *boardEdgeChange) error {
	e.after.implicitSince = 0
	e.after.lowerImplicit(changed.relationAfter)
	return t.eachBoardEdge(e, func(board string, facts boardEdge) {
		if board != changed.board {
			e.after.lowerImplicit(facts.relation(&e.after))
		}
	})
}

// dropFactsWithoutEffect drops the facts of an end without a follow, block, mute or settings. Such
// facts are kept only to decide about backfills that arrive later, and no backfill can arrive any
// more.
func (t *eventFold) dropFactsWithoutEffect(e *edgeEnd) error {
	// The board edges are dropped, too. Read those that e.boardChanges lacks.
	if e.after.hasBoards && !e.hasAllBoards {
		changed := e.boardChanges // at most one
		err := t.eachBoardEdge(e, func(board string, facts boardEdge) {
			if len(changed) == 0 || board != changed[0].board {
				// Without a follow of the followee or of a board there is no board relation, so
				// relationBefore stays zero.
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

// writeBoardEdge writes the row of a board edge, and then the rows that only one end has.
// explicitBefore and explicitAfter say whether the follower follows the followee explicitly. Only
// the in-end needs them, for the counts of the board.
func (t *eventFold) writeBoardEdge(e *edgeEnd, c *boardEdgeChange, explicitBefore, explicitAfter bool) error {
	if c.before != c.after {
		t.key = e.end.appendBoardEdgePrefix(t.key[:0], e.follower, e.followee)
		t.key = events.AppendID(t.key, c.board)
		t.value = t.value[:0]
		if c.after != (boardEdge{}) {
			t.value = c.after.appendRow(t.value)
		}
		t.setOrDeleteRow(t.key, t.value)
	}

	if e.end == inEnd {
		return t.writeInBoardEdge(e, c, explicitBefore, explicitAfter)
	}
	t.writeOutBoardEdge(e, c)
	return nil
}

// writeEdge writes the row of the edge, and no other, if the edge has changed.
func (t *eventFold) writeEdge(e *edgeEnd) {
	if e.before == e.after {
		return
	}

	t.key = e.end.appendEdgeKey(t.key[:0], e.follower, e.followee)
	t.value = t.value[:0]
	if e.after != (edge{}) {
		t.value = e.after.appendRow(t.value)
	}
	t.setOrDeleteRow(t.key, t.value)
}

// lengthChange returns the change of a list's length, +1, 0 or -1, given whether the list had an
// entry before and whether it has it after.
func lengthChange(before, after bool) int64 {
	switch {
	case after && !before:
		return 1
	case before && !after:
		return -1
	}
	return 0
}

// updateListRow writes, replaces or deletes the row of member in a list of listOwner. The time is
// part of the key, so a change of the time deletes one row and writes another. The value of the row
// has the settings of a follow.
func (t *eventFold) updateListRow(tag projections.Tag, listOwner, member string, before, after state) {
	if before == after {
		return
	}
	if before.holds && (!after.holds || before.since != after.since) {
		t.key = appendListKey(t.key[:0], tag, listOwner, before.since, member)
		t.batch.Delete(t.key)
	}
	if after.holds {
		t.key = appendListKey(t.key[:0], tag, listOwner, after.since, member)
		t.batch.Set(t.key, settingsValue(after.settings))
	}
}

// settingsValue returns the value of a list row: one byte with the settings, or nil if there are
// none, as in most rows.
func settingsValue(s events.FollowSettings) []byte {
	if s == 0 {
		return nil
	}
	return []byte{byte(s)}
}

// decodeSettingsValue decodes a value that settingsValue returned.
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

// updateBoardListRow writes, replaces or deletes the list row of a board relation. appendKey
// appends the key of the row for a relation. The kind of the relation decides about the list, so a
// change of the kind moves the row to another list.
func (t *eventFold) updateBoardListRow(c *boardEdgeChange, appendKey func(dst []byte, r relation) []byte) {
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
