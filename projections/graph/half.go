package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// txn folds one event. It holds the batch that the event is written to, and scratch space that is reused from event to event.
type txn struct {
	b  *projections.Batch
	ev *events.Event
	at factOrder
	// event is that of ev: an allocation for each would cost more than the copy.
	event events.Event
	// key, value and half are scratch. key and value may be reused after every call of the batch, which copies them; half may be
	// reused because a txn works on one half at a time.
	key, value []byte
	half       half
	// outOnly folds the ends at the homes of followers alone, without lists and counts (see [NewOut]).
	outOnly bool
	// short is the number of edges up to which a user has no list of follows of its own: it is sorted when it is read (short.go).
	short int64
	// observe is called with every change of a follow at the out-end. It is nil unless another projection embeds the graph.
	observe func(Change) error
}

// holds reports whether this store has the partition of a user, so that it must write the rows at the user's home.
func (t *txn) holds(home string) bool { return t.b.Holds(home) }

// put writes a row, or deletes it if the value is empty. A row without facts must not stay: rows of equal meaning must be equal
// bytes (I13), and after the deletion of a user nothing may name the user (I12).
func (t *txn) put(key, value []byte) {
	if len(value) == 0 {
		t.b.Delete(key)
		return
	}
	t.b.Set(key, value)
}

// end is one of the two ends at which an edge (a, b) is kept: at a, who follows, or at b, who is followed.
type end uint8

const (
	outEnd end = iota
	inEnd
)

// half is the edge (a, b) at one of its ends while one event changes it: the facts before and after, and the board
// relations that the change begins or ends. Each end has all facts, and derives what holds by the same functions, so it
// never asks the other (I13). [txn.write] turns the difference into rows and counts, so that every kind of event changes
// facts only and lists and counts follow from them in one place.
type half struct {
	end           end
	a, b          string
	before, after edge
	changes       []change
	// whole is set if changes has every board edge of the pair, and not only the one that the event is about. Then what depends on
	// all of them can be derived without reading rows.
	whole bool
}

// change is a board edge before and after the event, and what holds by it.
type change struct {
	board         string
	before, after boardEdge
	old, now      relation
}

// both calls change for each end of an edge that this store holds. The out-end comes last, because observers are called from it and
// may read the in-end.
func (t *txn) both(a, b string, change func(*txn, *half) error) error {
	if !t.outOnly {
		if err := t.one(inEnd, a, b, change); err != nil {
			return err
		}
	}
	return t.one(outEnd, a, b, change)
}

// one reads one end of an edge and calls change with it, if this store holds that end.
func (t *txn) one(e end, a, b string, change func(*txn, *half) error) error {
	home := a
	if e == inEnd {
		home = b
	}
	if !t.holds(home) {
		return nil
	}
	h := &t.half
	facts, err := readEdge(t.b, t.key[:0], e, a, b)
	if err != nil {
		return err
	}
	*h = half{end: e, a: a, b: b, before: facts, after: facts, changes: h.changes[:0]}
	return change(t, h)
}

// readEdge returns the facts of an edge at one end; the zero edge means that the pair has none.
func readEdge(r projections.Reader, scratch []byte, of end, a, b string) (e edge, err error) {
	tag := tagEdge
	if of == inEnd {
		tag = tagInEdge
	}
	row, ok, err := r.Get(of.edgeKey(scratch, tag, a, b))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decode(row)
}

// boardEdgePrefix appends the prefix of the board edges between two users at one end.
func (e end) boardEdgePrefix(dst []byte, a, b string) []byte {
	if e == inEnd {
		return e.edgeKey(dst, tagInBoardEdge, a, b)
	}
	return e.edgeKey(dst, tagBoardEdge, a, b)
}

func readBoardEdge(r projections.Reader, scratch []byte, of end, a, b, board string) (e boardEdge, err error) {
	row, ok, err := r.Get(events.AppendID(of.boardEdgePrefix(scratch, a, b), board))
	if err != nil || !ok {
		return e, err
	}
	return e, e.decode(row)
}

// eachBoardEdge calls do with every stored board edge of the half. do must not write, because an iterator is open.
func (t *txn) eachBoardEdge(h *half, do func(board string, e boardEdge)) error {
	prefix := h.end.boardEdgePrefix(nil, h.a, h.b)
	it := t.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		board, _, err := events.CutID(it.Key()[len(prefix):])
		var e boardEdge
		if err == nil {
			err = e.decode(it.Value())
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
func (t *txn) rederive(h *half) error {
	h.changes, h.whole = h.changes[:0], true
	if !h.before.boards {
		return nil
	}
	return t.eachBoardEdge(h, func(board string, e boardEdge) {
		h.changes = append(h.changes, change{board, e, e, e.relation(&h.before), e.relation(&h.after)})
	})
}

// rewrite writes a half whose facts about the owner have changed, with all board relations that follow from them.
func (t *txn) rewrite(h *half) error {
	if err := t.rederive(h); err != nil {
		return err
	}
	return t.write(h)
}

// erase removes a half with its board edges, lists and counts. It costs as much as the half has board edges.
func (t *txn) erase(h *half) error {
	if err := t.rederive(h); err != nil {
		return err
	}
	h.after = edge{}
	h.dropBoards()
	return t.write(h)
}

// dropBoards makes every change end its board edge.
func (h *half) dropBoards() {
	for i := range h.changes {
		h.changes[i].after, h.changes[i].now = boardEdge{}, relation{}
	}
}

// write turns the difference between the facts before and after into rows and counts. Relations, the lists that show them
// and the counts change together here and nowhere else (I7).
func (t *txn) write(h *half) error {
	was, is := h.before.explicitly(), h.after.explicitly()
	if err := t.deriveImplicit(h, is.holds); err != nil {
		return err
	}
	if t.b.BackfillsClosed() && !h.after.says() {
		if err := t.forget(h); err != nil {
			return err
		}
	}
	for i := range h.changes {
		if err := t.writeBoardEdge(h, &h.changes[i], was.holds, is.holds); err != nil {
			return err
		}
	}
	if h.end == inEnd {
		return t.writeIn(h, was, is)
	}
	return t.writeOut(h, was, is)
}

// deriveImplicit sets the time of the earliest board follow that holds. Usually the changes suffice. Only if the board follow that was
// the earliest changes, all the others must be read to find the next.
func (t *txn) deriveImplicit(h *half, explicit bool) error {
	e := &h.after
	if !e.boards || explicit {
		e.implicit = 0
		return nil
	}
	if h.whole {
		e.implicit = 0
	}
	for i := range h.changes {
		c := &h.changes[i]
		if !h.whole && c.old != c.now && c.old.kind == relationFollow && factOrder(c.old.since)+1 == e.implicit {
			return t.findImplicit(h, c)
		}
		e.followedOnBoard(c.now)
	}
	return nil
}

// findImplicit finds the earliest board follow by reading all of them. The one that changes is taken as it will be.
func (t *txn) findImplicit(h *half, c *change) error {
	h.after.implicit = 0
	h.after.followedOnBoard(c.now)
	return t.eachBoardEdge(h, func(board string, e boardEdge) {
		if board != c.board {
			h.after.followedOnBoard(e.relation(&h.after))
		}
	})
}

// forget drops the facts of a half by which nothing holds any more. They were kept only so that late history would lose against them,
// and once all backfills are closed none can come.
func (t *txn) forget(h *half) error {
	if h.after.boards && !h.whole {
		var but string
		if len(h.changes) > 0 {
			but = h.changes[0].board
		}
		n := len(h.changes)
		err := t.eachBoardEdge(h, func(board string, e boardEdge) {
			if n == 0 || board != but {
				h.changes = append(h.changes, change{board: board, before: e})
			}
		})
		if err != nil {
			return err
		}
	}
	h.after = edge{}
	h.dropBoards()
	return nil
}

// writeBoardEdge writes a board edge, the lists that show it, and the row from which the end of its board finds it.
func (t *txn) writeBoardEdge(h *half, c *change, was, is bool) error {
	if c.before != c.after {
		t.key = events.AppendID(h.end.boardEdgePrefix(t.key[:0], h.a, h.b), c.board)
		t.value = t.value[:0]
		if c.after != (boardEdge{}) {
			t.value = c.after.append(t.value)
		}
		t.put(t.key, t.value)
	}
	if h.end == inEnd {
		return t.writeInBoard(h, c, was, is)
	}
	t.writeOutBoard(h, c)
	return nil
}

// writeEdge writes the row of the edge if its facts have changed.
func (t *txn) writeEdge(h *half, tag projections.Tag) {
	if h.before == h.after {
		return
	}
	t.key, t.value = h.end.edgeKey(t.key[:0], tag, h.a, h.b), t.value[:0]
	if h.after != (edge{}) {
		t.value = h.after.append(t.value)
	}
	t.put(t.key, t.value)
}

// delta is the difference that a change makes to the length of a list.
func delta(was, is bool) int64 {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// moveRow moves a user's row in a list of another user. The key has the time, so a change of the time deletes one row and writes another.
func (t *txn) moveRow(tag projections.Tag, of, user string, before, after state) {
	if before == after {
		return
	}
	if before.holds {
		t.key = listKey(t.key[:0], tag, of, before.since, user)
		t.b.Delete(t.key)
	}
	if after.holds {
		t.key = listKey(t.key[:0], tag, of, after.since, user)
		t.b.Set(t.key, nil)
	}
}

// moveBoard moves the rows of a board relation in its lists. key makes the key of a relation: its list follows from its kind.
func (t *txn) moveBoard(c *change, key func(dst []byte, r relation) []byte) {
	if c.old == c.now {
		return
	}
	if c.old.kind != relationNone {
		t.key = key(t.key[:0], c.old)
		t.b.Delete(t.key)
	}
	if c.now.kind != relationNone {
		t.key = key(t.key[:0], c.now)
		t.b.Set(t.key, nil)
	}
}
