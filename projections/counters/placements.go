package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// Where an item stands. It is in the list of an owner or of a board while at least one living pin of theirs shows it, and
// always in everybody's. Between two events the rows of the lists follow from the versions of the item that are kept and from
// where it is:
//
//   - everybody's list has all of its versions,
//   - the list of an owner or board that shows it has all of its versions, or, if it is widespread, one entry without a score,
//   - a list of one that does not show it has nothing of it.
//
// So a session (I9), which reads the scores as of its position S and the lists as they are, gives every item of a list one
// place for its whole life: that of the version that holds at S, whether it stands in the list or is looked up; it is kept as
// long as the session lives (versions.go). A page shows all items of the list as it is whose places are between the last one
// shown and its own end. What is in the list throughout has its place in just one of these ranges, and is met there: exactly
// once. What comes or goes is met in that range if the list has it then: at most once, and never when it has gone. What has
// no version at S came later, and is left out.
//
// A pin that comes brings all versions of its item and not only the present one: the item may have been in the list at S by
// another pin that went in the same envelope, so that at every position it was there, and S may be of an older version. A
// list that an item leaves loses all versions at once.

// shows folds that a pin changed: which item it shows, and where.
func (c *Counters) shows(owner string, before, after pinfacts.State) error {
	was, is := before.Made != nil, after.Made != nil
	if was && is && before.Made.Item == after.Made.Item {
		if before.Board == after.Board {
			return nil
		}
		return c.place(owner, after.Made.Item, &before.Board, &after.Board)
	}
	if was {
		if err := c.place(owner, before.Made.Item, &before.Board, nil); err != nil {
			return err
		}
	}
	if is {
		return c.place(owner, after.Made.Item, nil, &after.Board)
	}
	return nil
}

// place folds that a pin that shows an item leaves a board of an owner, comes to one, or both.
func (c *Counters) place(owner, item string, leaves, comes *string) error {
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	e := entries{c: c, item: item, it: &it}
	before, went, came := it.boards, "", ""
	if leaves != nil {
		last, err := e.pinGoes(projections.AppendKey(nil, tagBoardShows, item, owner, *leaves), boardTopPrefix(owner, *leaves))
		if err != nil {
			return err
		}
		if last {
			it.boards--
			went = boardName(owner, *leaves)
		}
	}
	if comes != nil {
		first, err := e.pinComes(projections.AppendKey(nil, tagBoardShows, item, owner, *comes), boardTopPrefix(owner, *comes))
		if err != nil {
			return err
		}
		if first {
			it.boards++
			came = boardName(owner, *comes)
		}
	}
	switch {
	case comes == nil:
		_, err = e.pinGoes(projections.AppendKey(nil, tagOwnerShows, item, owner), ownerTopPrefix(owner))
	case leaves == nil:
		_, err = e.pinComes(projections.AppendKey(nil, tagOwnerShows, item, owner), ownerTopPrefix(owner))
	}
	if err != nil {
		return err
	}
	if err := c.name(item, &it, before, went, came); err != nil {
		return err
	}
	if err := e.spread(); err != nil {
		return err
	}
	c.writeItem(item, &it)
	return nil
}

// entries writes and removes what the lists of owners and boards have of one item.
type entries struct {
	c    *Counters
	item string
	it   *itemRow
	// versions are read when they are needed.
	versions []version
	read     bool
}

// each calls do for each version.
func (e *entries) each(do func(v *version)) (err error) {
	if !e.it.hot {
		return nil // what has no score has no version
	}
	if !e.read {
		if e.versions, err = e.c.versions(e.item); err != nil {
			return err
		}
		e.read = true
	}
	for i := range e.versions {
		do(&e.versions[i])
	}
	return nil
}

// pinComes adds to the count of the pins that show the item in a list, which the first brings into it.
func (e *entries) pinComes(count, list []byte) (first bool, err error) {
	n, err := e.c.addCount(count, 1)
	if err != nil || n > 1 {
		return false, err
	}
	return true, e.enter(list)
}

// pinGoes takes from it. With the last the item leaves the list.
func (e *entries) pinGoes(count, list []byte) (last bool, err error) {
	n, err := e.c.addCount(count, -1)
	if err != nil || n > 0 {
		return false, err
	}
	return true, e.leave(list)
}

func (e *entries) enter(lists ...[]byte) error {
	if e.it.widespread {
		for _, list := range lists {
			e.c.key = widespreadKey(e.c.key[:0], list, e.item)
			e.c.b.Set(e.c.key, nil)
		}
		return nil
	}
	return e.each(func(v *version) { e.c.list(lists, e.item, v) })
}

func (e *entries) leave(lists ...[]byte) error {
	if e.it.widespread {
		for _, list := range lists {
			e.c.key = widespreadKey(e.c.key[:0], list, e.item)
			e.c.b.Delete(e.c.key)
		}
		return nil
	}
	return e.each(func(v *version) { e.c.unlist(lists, e.item, v) })
}

// spread makes an item widespread that is on more boards than [Settings.Widespread], or not any more one that is on no more
// than half as many: an item on the threshold that comes and goes is not written anew each time. Either way the boards are
// few, and the work is bounded by the setting.
func (e *entries) spread() error {
	most := int64(e.c.settings.Widespread)
	if e.it.widespread {
		most /= 2
	}
	if e.it.widespread == (e.it.boards > most) {
		return nil
	}
	lists, err := e.c.shownIn(e.item, e.it)
	if err != nil {
		return err
	}
	if err := e.leave(lists...); err != nil {
		return err
	}
	e.it.widespread = !e.it.widespread
	return e.enter(lists...)
}

// listsOf returns the lists in which an item stands with its versions.
func (c *Counters) listsOf(item string, it *itemRow) (lists [][]byte, err error) {
	if !it.widespread && it.boards > 0 {
		lists, err = c.shownIn(item, it)
	}
	return append(lists, topPrefix()), err
}

// shownIn returns the lists of the owners and boards that show an item.
func (c *Counters) shownIn(item string, it *itemRow) (lists [][]byte, err error) {
	last := ""
	add := func(owner, board string) {
		if owner != last { // the boards of an owner stand together
			lists = append(lists, ownerTopPrefix(owner))
			last = owner
		}
		lists = append(lists, boardTopPrefix(owner, board))
	}
	if it.names != "" {
		err = it.names.each(add)
	} else {
		err = c.eachBoard(item, add)
	}
	return lists, err
}

// eachBoard calls do with the owners and boards that show an item, in the order of their keys.
func (c *Counters) eachBoard(item string, do func(owner, board string)) (err error) {
	prefix := projections.AppendKey(nil, tagBoardShows, item)
	it := c.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && err == nil {
		var owner, board string
		if owner, board, err = cutTwo(it.Key()[len(prefix):]); err == nil {
			do(owner, board)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}
