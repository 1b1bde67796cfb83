package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// txn folds one event. It holds the batch that the event is written to, and scratch space that is reused from event to event.
type txn struct {
	batch *projections.Batch
	ev    *events.Event
	order factOrder
	// event is that of ev: an allocation for each would cost more than the copy.
	eventCopy events.Event
	// key, value and half are scratch. key and value may be reused after every call of the batch, which copies them; half may be
	// reused because a txn works on one half at a time.
	key, value []byte
	scratchEnd edgeEnd
	// outOnly folds the ends at the homes of followers alone, without lists and counts (see [NewOut]).
	outEndsOnly bool
	// short is the number of edges up to which a user has no list of follows of its own: it is sorted when it is read (short.go).
	maxShortList int64
	// observe is called with every change of a follow at the out-end. It is nil unless another projection embeds the graph.
	observe func(Change) error
}

// holds reports whether this store has the partition of a user, so that it must write the rows at the user's home.
func (t *txn) holdsHome(home string) bool { return t.batch.Holds(home) }

// put writes a row, or deletes it if the value is empty. A row without facts must not stay: rows of equal meaning must be equal
// bytes (I13), and after the deletion of a user nothing may name the user (I12).
func (t *txn) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		t.batch.Delete(key)
		return
	}
	t.batch.Set(key, value)
}

// end is one of the two ends at which an edge (a, b) is kept: at a, who follows, or at b, who is followed.
type endKind uint8

const (
	outEnd endKind = iota
	inEnd
)

// half is the edge (a, b) at one of its ends while one event changes it: the facts before and after, and the board
// relations that the change begins or ends. Each end has all facts, and derives what holds by the same functions, so it
// never asks the other (I13). [txn.write] turns the difference into rows and counts, so that every kind of event changes
// facts only and lists and counts follow from them in one place.
type edgeEnd struct {
	end                endKind
	follower, followee string
	before, after      edge
	boardChanges       []boardEdgeChange
	// whole is set if changes has every board edge of the pair, and not only the one that the event is about. Then what depends on
	// all of them can be derived without reading rows.
	hasAllBoards bool
}

// change is a board edge before and after the event, and what holds by it.
type boardEdgeChange struct {
	board                         string
	before, after                 boardEdge
	relationBefore, relationAfter relation
}

// both calls change for each end of an edge that this store holds. The out-end comes last, because observers are called from it and
// may read the in-end.
func (t *txn) applyBothEnds(a, b string, change func(*txn, *edgeEnd) error) error {
	if !t.outEndsOnly {
		if err := t.applyOneEnd(inEnd, a, b, change); err != nil {
			return err
		}
	}
	return t.applyOneEnd(outEnd, a, b, change)
}

// one reads one end of an edge and calls change with it, if this store holds that end.
func (t *txn) applyOneEnd(e endKind, a, b string, change func(*txn, *edgeEnd) error) error {
	home := a
	if e == inEnd {
		home = b
	}
	if !t.holdsHome(home) {
		return nil
	}
	h := &t.scratchEnd
	facts, err := readEdge(t.batch, t.key[:0], e, a, b)
	if err != nil {
		return err
	}
	*h = edgeEnd{end: e, follower: a, followee: b, before: facts, after: facts, boardChanges: h.boardChanges[:0]}
	return change(t, h)
}

// readEdge returns the facts of an edge at one end; the zero edge means that the pair has none.
func readEdge(r projections.Reader, scratch []byte, of endKind, a, b string) (e edge, err error) {
	tag := tagEdge
	if of == inEnd {
		tag = tagInEdge
	}
	row, ok, err := r.Get(of.appendEdgeKey(scratch, tag, a, b))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decodeRow(row)
}

// boardEdgePrefix appends the prefix of the board edges between two users at one end.
func (e endKind) appendBoardEdgePrefix(dst []byte, a, b string) []byte {
	if e == inEnd {
		return e.appendEdgeKey(dst, tagInBoardEdge, a, b)
	}
	return e.appendEdgeKey(dst, tagBoardEdge, a, b)
}

func readBoardEdge(r projections.Reader, scratch []byte, of endKind, a, b, board string) (e boardEdge, err error) {
	row, ok, err := r.Get(events.AppendID(of.appendBoardEdgePrefix(scratch, a, b), board))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decodeRow(row)
}

// eachBoardEdge calls do with every stored board edge of the half. do must not write, because an iterator is open.
func (t *txn) eachBoardEdge(h *edgeEnd, do func(board string, e boardEdge)) error {
	prefix := h.end.appendBoardEdgePrefix(nil, h.follower, h.followee)
	it := t.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		board, _, err := events.CutID(it.Key()[len(prefix):])
		var e boardEdge
		if err == nil {
			err = e.decodeRow(it.Value())
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		do(board, e)
	}
	return it.Close()
}

// rederive lists all board relations of the half as changes. It is needed when facts about the owner change, because each board
// relation also depends on those: a block or an unfollow of the owner ends it.
func (t *txn) loadBoardChanges(h *edgeEnd) error {
	h.boardChanges, h.hasAllBoards = h.boardChanges[:0], true
	if !h.before.hasBoards {
		return nil
	}
	return t.eachBoardEdge(h, func(board string, e boardEdge) {
		h.boardChanges = append(h.boardChanges, boardEdgeChange{board, e, e, e.relation(&h.before), e.relation(&h.after)})
	})
}

// rewrite writes a half whose facts about the owner have changed, with all board relations that follow from them.
func (t *txn) writeWithBoards(h *edgeEnd) error {
	if err := t.loadBoardChanges(h); err != nil {
		return err
	}
	return t.writeEnd(h)
}

// erase removes a half with its board edges, lists and counts. It costs as much as the half has board edges.
func (t *txn) eraseEnd(h *edgeEnd) error {
	if err := t.loadBoardChanges(h); err != nil {
		return err
	}
	h.after = edge{}
	h.clearBoardFacts()
	return t.writeEnd(h)
}

// dropBoards makes every change end its board edge.
func (h *edgeEnd) clearBoardFacts() {
	for i := range h.boardChanges {
		h.boardChanges[i].after, h.boardChanges[i].relationAfter = boardEdge{}, relation{}
	}
}

// write turns the difference between the facts before and after into rows and counts. Relations, the lists that show them
// and the counts change together here and nowhere else (I7).
func (t *txn) writeEnd(h *edgeEnd) error {
	was, is := h.before.explicitState(), h.after.explicitState()
	if err := t.updateImplicit(h, is.holds); err != nil {
		return err
	}
	if t.batch.BackfillsClosed() && !h.after.hasEffect() {
		if err := t.dropUnusedFacts(h); err != nil {
			return err
		}
	}
	for i := range h.boardChanges {
		if err := t.writeBoardEdge(h, &h.boardChanges[i], was.holds, is.holds); err != nil {
			return err
		}
	}
	if h.end == inEnd {
		return t.writeInEnd(h, was, is)
	}
	return t.writeOutEnd(h, was, is)
}

// deriveImplicit sets the time of the earliest board follow that holds. Usually the changes suffice. Only if the board follow that was
// the earliest changes, all the others must be read to find the next.
func (t *txn) updateImplicit(h *edgeEnd, explicit bool) error {
	e := &h.after
	if !e.hasBoards || explicit {
		e.implicitSince = 0
		return nil
	}
	if h.hasAllBoards {
		e.implicitSince = 0
	}
	for i := range h.boardChanges {
		c := &h.boardChanges[i]
		if !h.hasAllBoards && c.relationBefore != c.relationAfter && c.relationBefore.kind == relationFollow && factOrder(c.relationBefore.since)+1 == e.implicitSince {
			return t.recomputeImplicit(h, c)
		}
		e.lowerImplicit(c.relationAfter)
	}
	return nil
}

// findImplicit finds the earliest board follow by reading all of them. The one that changes is taken as it will be.
func (t *txn) recomputeImplicit(h *edgeEnd, c *boardEdgeChange) error {
	h.after.implicitSince = 0
	h.after.lowerImplicit(c.relationAfter)
	return t.eachBoardEdge(h, func(board string, e boardEdge) {
		if board != c.board {
			h.after.lowerImplicit(e.relation(&h.after))
		}
	})
}

// forget drops the facts of a half by which nothing holds any more. They were kept only so that late history would lose against them,
// and once all backfills are closed none can come.
func (t *txn) dropUnusedFacts(h *edgeEnd) error {
	if h.after.hasBoards && !h.hasAllBoards {
		var but string
		if len(h.boardChanges) > 0 {
			but = h.boardChanges[0].board
		}
		n := len(h.boardChanges)
		err := t.eachBoardEdge(h, func(board string, e boardEdge) {
			if n == 0 || board != but {
				h.boardChanges = append(h.boardChanges, boardEdgeChange{board: board, before: e})
			}
		})
		if err != nil {
			return err
		}
	}
	h.after = edge{}
	h.clearBoardFacts()
	return nil
}

// writeBoardEdge writes a board edge, the lists that show it, and the row from which the end of its board finds it.
func (t *txn) writeBoardEdge(h *edgeEnd, c *boardEdgeChange, was, is bool) error {
	if c.before != c.after {
		t.key = events.AppendID(h.end.appendBoardEdgePrefix(t.key[:0], h.follower, h.followee), c.board)
		t.value = t.value[:0]
		if c.after != (boardEdge{}) {
			t.value = c.after.appendRow(t.value)
		}
		t.setOrDelete(t.key, t.value)
	}
	if h.end == inEnd {
		return t.writeInBoardEdge(h, c, was, is)
	}
	t.writeOutBoardEdge(h, c)
	return nil
}

// writeEdge writes the row of the edge if its facts have changed.
func (t *txn) writeEdge(h *edgeEnd, tag projections.Tag) {
	if h.before == h.after {
		return
	}
	t.key, t.value = h.end.appendEdgeKey(t.key[:0], tag, h.follower, h.followee), t.value[:0]
	if h.after != (edge{}) {
		t.value = h.after.appendRow(t.value)
	}
	t.setOrDelete(t.key, t.value)
}

// delta is the difference that a change makes to the length of a list.
func lengthChange(was, is bool) int64 {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// moveRow moves a user's row in a list of another user. The key has the time, so a change of the time deletes one row and writes another.
func (t *txn) moveListRow(tag projections.Tag, of, user string, before, after state) {
	if before == after {
		return
	}
	if before.holds {
		t.key = listKey(t.key[:0], tag, of, before.since, user)
		t.batch.Delete(t.key)
	}
	if after.holds {
		t.key = listKey(t.key[:0], tag, of, after.since, user)
		t.batch.Set(t.key, nil)
	}
}

// moveBoard moves the rows of a board relation in its lists. key makes the key of a relation: its list follows from its kind.
func (t *txn) moveBoardListRow(c *boardEdgeChange, key func(dst []byte, r relation) []byte) {
	if c.relationBefore == c.relationAfter {
		return
	}
	if c.relationBefore.kind != relationNone {
		t.key = key(t.key[:0], c.relationBefore)
		t.batch.Delete(t.key)
	}
	if c.relationAfter.kind != relationNone {
		t.key = key(t.key[:0], c.relationAfter)
		t.batch.Set(t.key, nil)
	}
}
