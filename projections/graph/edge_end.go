package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// eventFold folds events into rows, one event after the other. [Graph] keeps one and reuses it for
// every event, so that a fold need not allocate.
type eventFold struct {
	// batch is that of the current event: it reads rows and collects what is written.
	batch *projections.Batch
	// ev is the current event, and order the order of the fact that it states.
	ev    *events.Event
	order factOrder
	// eventCopy is what ev points to. If ev pointed to the argument of Apply, each call would
	// allocate the argument.
	eventCopy events.Event

	// key and value are buffers. The batch copies keys and values, so every method of eventFold may
	// overwrite the buffers once it has called the batch.
	key, value []byte
	// changeBuffer is the change that applyOneEnd passes on. Only one end of an edge is changed at
	// a time, so one buffer is enough.
	changeBuffer edgeChange

	// outEndsOnly is set for [NewOutEnds]: only out-ends and their regions are stored, with three
	// of the lists ([eventFold.writeOutEnd]) and without counts.
	outEndsOnly bool
	// maxShortList is the number of edges up to which a user's list of follows is not stored
	// (following_list.go).
	maxShortList int64
	// observe is the function given to [Graph.Observe], or nil.
	observe func(FollowChange) error
}

// holdsHome reports whether this store holds the home of a user. A store of a cluster node holds
// only some partitions.
func (f *eventFold) holdsHome(user string) bool { return f.batch.Holds(user) }

// setOrDeleteRow writes the row of an edge, a board edge or counts. It deletes the row if the value
// is empty, which means that there are no facts or that all counts are 0. Such a row must not stay:
// stores with the same facts must have the same bytes, and nothing may name a deleted user
// (docs/invariants.md, I13 and I12).
func (f *eventFold) setOrDeleteRow(key, value []byte) {
	if len(value) == 0 {
		f.batch.Delete(key)
		return
	}
	f.batch.Set(key, value)
}

// endKind is one of the two ends of an edge.
type endKind uint8

const (
	// outEnd is at the home of the follower.
	outEnd endKind = iota
	// inEnd is at the home of the followee.
	inEnd
)

// edgeChange is the change that one event makes to an edge at one of its ends. The event changes
// facts in after. Then [eventFold.writeEnd] derives the relations from the facts, and changes rows
// and counts by the difference between before and after.
type edgeChange struct {
	end                endKind
	follower, followee string
	before, after      edge
	// boardChanges has the changes of board edges between the two users. Without
	// hasAllBoardChanges, it has at most one element: that of the board that the event is about.
	// With it, boardChanges has an element for each board edge, even for one that has not changed.
	// Only [eventFold.dropFactsWithoutEffect] adds elements without setting hasAllBoardChanges.
	boardChanges       []boardEdgeChange
	hasAllBoardChanges bool
}

// boardEdgeChange is the change of a board edge. The relation may change though the facts of the
// board edge do not, because it also depends on the facts of the edge to the owner.
type boardEdgeChange struct {
	board                         string
	before, after                 boardEdge
	relationBefore, relationAfter boardRelation
}

// applyBothEnds calls [eventFold.applyOneEnd] for both ends of the edge, or only for the out-end if
// the graph has no in-ends.
func (f *eventFold) applyBothEnds(
	follower, followee string, applyChange func(*eventFold, *edgeChange) error,
) error {
	// The out-end comes last, because writing it calls the observer, and the observer may read the
	// in-end if this store holds it.
	if !f.outEndsOnly {
		if err := f.applyOneEnd(inEnd, follower, followee, applyChange); err != nil {
			return err
		}
	}
	return f.applyOneEnd(outEnd, follower, followee, applyChange)
}

// applyOneEnd reads the edge at one end, and calls applyChange with it, if this store holds that
// end. applyChange changes the facts and calls [eventFold.writeEnd]. applyChange is a method
// expression such as (*eventFold).followUser, because a closure or a method value would be
// allocated for each event.
func (f *eventFold) applyOneEnd(
	end endKind, follower, followee string, applyChange func(*eventFold, *edgeChange) error,
) error {
	home := follower
	if end == inEnd {
		home = followee
	}
	if !f.holdsHome(home) {
		return nil
	}

	facts, err := readEdge(f.batch, f.key[:0], end, follower, followee)
	if err != nil {
		return err
	}

	change := &f.changeBuffer
	*change = edgeChange{
		end:          end,
		follower:     follower,
		followee:     followee,
		before:       facts,
		after:        facts,
		boardChanges: change.boardChanges[:0],
	}
	return applyChange(f, change)
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

// eachBoardEdge calls do with every board edge of the follower to a board of the followee, as its
// row at this end says. The changes in change.boardChanges are not in the rows until
// [eventFold.writeBoardEdge] writes them. The function do must not write rows, because an iterator
// is open.
func (f *eventFold) eachBoardEdge(change *edgeChange, do func(board string, facts boardEdge)) error {
	prefix := change.end.appendBoardEdgePrefix(nil, change.follower, change.followee)
	it := f.batch.Iter(prefix, projections.PrefixEnd(prefix))
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
// change.boardChanges. This is needed when an event has changed facts in change.after, because
// every board relation depends on them, too. For example, an unfollow of the followee ends all
// board follows. eraseEnd, which calls loadBoardChanges before it clears change.after, clears the
// loaded changes, too.
func (f *eventFold) loadBoardChanges(change *edgeChange) error {
	change.boardChanges = change.boardChanges[:0]
	change.hasAllBoardChanges = true
	if !change.before.mayHaveBoardEdges {
		return nil
	}

	return f.eachBoardEdge(change, func(board string, facts boardEdge) {
		change.boardChanges = append(change.boardChanges, boardEdgeChange{
			board:          board,
			before:         facts,
			after:          facts,
			relationBefore: facts.relation(&change.before),
			relationAfter:  facts.relation(&change.after),
		})
	})
}

// writeEndWithBoards writes an end after an event has changed facts in change.after on which board
// relations depend. Its cost grows with the number of board edges.
func (f *eventFold) writeEndWithBoards(change *edgeChange) error {
	if err := f.loadBoardChanges(change); err != nil {
		return err
	}
	return f.writeEnd(change)
}

// eraseEnd deletes an end with its board edges, removes their entries from lists, and subtracts
// them from counts. Its cost grows with the number of board edges.
func (f *eventFold) eraseEnd(change *edgeChange) error {
	if err := f.loadBoardChanges(change); err != nil {
		return err
	}
	change.after = edge{}
	change.clearBoardFacts()
	return f.writeEnd(change)
}

// clearBoardFacts sets change.boardChanges so that writeEnd deletes the board edges in it.
func (change *edgeChange) clearBoardFacts() {
	for i := range change.boardChanges {
		change.boardChanges[i].after = boardEdge{}
		change.boardChanges[i].relationAfter = boardRelation{}
	}
}

// writeEnd writes an end after an event has changed facts in change.after. It first updates what
// depends on the facts: it drops settings that have ended, sets the implicit follow, and drops
// facts that are no longer needed. Then it writes the board edges and the edge, and changes lists
// and counts by the difference between before and after. No other function changes the lists and
// counts of relations, so a list and its count always agree (I7).
func (f *eventFold) writeEnd(change *edgeChange) error {
	// Settings end with an unfollow or a block. This event may be an unfollow or a block, or a
	// backfill of settings that a backfill which arrived earlier has ended.
	change.after.dropEndedSettings()

	explicitBefore := change.before.explicitFollow()
	explicitAfter := change.after.explicitFollow()

	if err := f.updateImplicitSince(change, explicitAfter.holds); err != nil {
		return err
	}

	// Facts without effect only serve to decide about backfills that arrive later. The closing of
	// all backfills is an event of the log, so all stores drop such facts at the same events.
	if f.batch.BackfillsClosed() && !change.after.hasEffect() {
		if err := f.dropFactsWithoutEffect(change); err != nil {
			return err
		}
	}

	for i := range change.boardChanges {
		err := f.writeBoardEdge(change, &change.boardChanges[i], explicitBefore.holds, explicitAfter.holds)
		if err != nil {
			return err
		}
	}

	if change.end == inEnd {
		return f.writeInEnd(change, explicitBefore, explicitAfter)
	}
	return f.writeOutEnd(change, explicitBefore, explicitAfter)
}

// updateImplicitSince sets after.implicitSince to the time of the earliest board follow that holds,
// or to 0 if there is none or if the follower follows the followee explicitly.
func (f *eventFold) updateImplicitSince(change *edgeChange, followsExplicitly bool) error {
	after := &change.after
	if !after.mayHaveBoardEdges || followsExplicitly {
		after.implicitSince = 0
		return nil
	}

	if change.hasAllBoardChanges {
		after.implicitSince = 0
	}
	for i := range change.boardChanges {
		boardChange := &change.boardChanges[i]
		wasFollow := boardChange.relationBefore.kind == relationFollow
		wasEarliest := wasFollow && backfillOrderAt(boardChange.relationBefore.since) == after.implicitSince
		if !change.hasAllBoardChanges && wasEarliest && boardChange.relationBefore != boardChange.relationAfter {
			// The earliest board follow changes, and the next one is not known. Without
			// hasAllBoardChanges, boardChange is the only element of boardChanges, so no other one
			// is left out.
			return f.recomputeImplicitSince(change, boardChange)
		}
		after.lowerImplicitSince(boardChange.relationAfter)
	}
	return nil
}

// recomputeImplicitSince sets after.implicitSince by reading all board edges. The changed board
// edge is not written yet, so recomputeImplicitSince ignores its row and uses
// changed.relationAfter.
func (f *eventFold) recomputeImplicitSince(change *edgeChange, changed *boardEdgeChange) error {
	change.after.implicitSince = 0
	change.after.lowerImplicitSince(changed.relationAfter)
	return f.eachBoardEdge(change, func(board string, facts boardEdge) {
		if board != changed.board {
			change.after.lowerImplicitSince(facts.relation(&change.after))
		}
	})
}

// dropFactsWithoutEffect drops the facts of an end without a follow, block, mute or settings. Such
// facts are kept only to decide about backfills that arrive later, and no backfill can arrive any
// more.
func (f *eventFold) dropFactsWithoutEffect(change *edgeChange) error {
	// The board edges are dropped, too. Add those that change.boardChanges lacks.
	if change.after.mayHaveBoardEdges && !change.hasAllBoardChanges {
		changed := change.boardChanges // at most one
		err := f.eachBoardEdge(change, func(board string, facts boardEdge) {
			if len(changed) == 0 || board != changed[0].board {
				// Without hasAllBoardChanges, the relations of other boards do not change. They
				// have none, because nothing holds by the edge, so relationBefore stays zero.
				change.boardChanges = append(change.boardChanges, boardEdgeChange{board: board, before: facts})
			}
		})
		if err != nil {
			return err
		}
	}

	change.after = edge{}
	change.clearBoardFacts()
	return nil
}

// writeBoardEdge writes the row of a board edge, and then the rows that only this end has.
// explicitBefore and explicitAfter say whether the follower follows the followee explicitly. Only
// the in-end needs them, for the counts of the board.
func (f *eventFold) writeBoardEdge(
	change *edgeChange, boardChange *boardEdgeChange, explicitBefore, explicitAfter bool,
) error {
	if boardChange.before != boardChange.after {
		f.key = change.end.appendBoardEdgePrefix(f.key[:0], change.follower, change.followee)
		f.key = events.AppendID(f.key, boardChange.board)
		f.value = f.value[:0]
		if boardChange.after != (boardEdge{}) {
			f.value = boardChange.after.appendRow(f.value)
		}
		f.setOrDeleteRow(f.key, f.value)
	}

	if change.end == inEnd {
		return f.writeInBoardEdge(change, boardChange, explicitBefore, explicitAfter)
	}
	f.writeOutBoardEdge(change, boardChange)
	return nil
}

// writeEdgeRow writes the row of the edge, if the edge has changed.
func (f *eventFold) writeEdgeRow(change *edgeChange) {
	if change.before == change.after {
		return
	}

	f.key = change.end.appendEdgeKey(f.key[:0], change.follower, change.followee)
	f.value = f.value[:0]
	if change.after != (edge{}) {
		f.value = change.after.appendRow(f.value)
	}
	f.setOrDeleteRow(f.key, f.value)
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
// is the settings of the follow.
func (f *eventFold) updateListRow(tag projections.Tag, listOwner, member string, before, after userRelation) {
	if before == after {
		return
	}
	if before.holds && (!after.holds || before.since != after.since) {
		f.key = appendListKey(f.key[:0], tag, listOwner, before.since, member)
		f.batch.Delete(f.key)
	}
	if after.holds {
		f.key = appendListKey(f.key[:0], tag, listOwner, after.since, member)
		f.batch.Set(f.key, settingsValue(after.settings))
	}
}

// settingsValue returns the value of a list row: one byte with the settings, or nil if none is on,
// as in most rows.
func settingsValue(settings events.FollowSettings) []byte {
	if settings == 0 {
		return nil
	}
	return []byte{byte(settings)}
}

// decodeSettingsValue decodes a value that settingsValue returned.
func decodeSettingsValue(value []byte) (events.FollowSettings, error) {
	if len(value) == 0 {
		return 0, nil
	}
	settings := events.FollowSettings(value[0])
	if len(value) > 1 || settings == 0 || settings > events.AllFollowSettings {
		return 0, projections.RowError("settings", value)
	}
	return settings, nil
}

// updateBoardListRow writes, replaces or deletes the list row of a board relation. appendKey
// appends the key of the row for a relation. Board follows and exclusions are in different lists,
// so a change from one to the other moves the row.
func (f *eventFold) updateBoardListRow(
	boardChange *boardEdgeChange, appendKey func(dst []byte, relation boardRelation) []byte,
) {
	if boardChange.relationBefore == boardChange.relationAfter {
		return
	}
	if boardChange.relationBefore.kind != relationNone {
		f.key = appendKey(f.key[:0], boardChange.relationBefore)
		f.batch.Delete(f.key)
	}
	if boardChange.relationAfter.kind != relationNone {
		f.key = appendKey(f.key[:0], boardChange.relationAfter)
		f.batch.Set(f.key, nil)
	}
}
