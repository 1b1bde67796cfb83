package counters

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/projections"
)

// trendingWalk walks over the sort keys of a list at the position of a session. It merges the
// entries by score, which are in order, with the entries by name, whose scores it has looked up.
type trendingWalk struct {
	q *Queries
	// prefix is the prefix of the entries by score, and it iterates over them.
	prefix  []byte
	session session
	it      projections.Iterator
	// shownPins reads what the owner's living pins show. If it is nil, all entries count as shown,
	// as in the global list.
	shownPins projections.Iterator
	// nextVersion is the sort key of the next entry by score that holds at the position. nil means
	// that there is none.
	nextVersion []byte
	// namedSortKeys are the remaining sort keys of the entries by name, in order.
	namedSortKeys [][]byte
	// maxRows limits the number of rows that are read; 0 means no limit.
	maxRows int
}

// walkSortKeys returns the first n sort keys, after one, of what a list shows. ok is false if that
// took more than maxRows rows; 0 means no limit.
func (q *Queries) walkSortKeys(
	ctx context.Context, s Scope, at session, after []byte, n, maxRows int,
) (sortKeys [][]byte, ok bool, err error) {
	w, err := q.newTrendingWalk(ctx, s, at, after, maxRows)
	if err != nil {
		return nil, false, err
	}
	if s.Owner != "" {
		w.shownPins = q.shownPins(s.Owner)
	}
	sortKeys, err = w.takeShown(ctx, s, n)
	if cerr := w.close(); err == nil {
		err = cerr
	}
	return sortKeys, !w.isOverLimit(), err
}

// shownPins iterates over the rows that say what the living pins of an owner show.
func (q *Queries) shownPins(owner string) projections.Iterator {
	prefix := projections.AppendKey(nil, tagShownItem, owner)
	return q.state.Iter(prefix, projections.PrefixEnd(prefix))
}

func (q *Queries) newTrendingWalk(
	ctx context.Context, s Scope, at session, after []byte, maxRows int,
) (*trendingWalk, error) {
	list := globalListPrefix()
	if s.Owner != "" {
		list = ownerListPrefix(s.Owner)
	}
	w := &trendingWalk{
		q:       q,
		prefix:  append(bytes.Clone(list), entryByScore),
		session: at,
		maxRows: maxRows,
	}

	// Only lists of owners have entries by name.
	if s.Owner != "" {
		if err := w.readNamedItems(ctx, append(bytes.Clone(list), entryByName), after); err != nil {
			return nil, err
		}
	}

	lower := w.prefix
	if after != nil {
		// Begin after all versions that have this sort key.
		lower = projections.PrefixEnd(append(bytes.Clone(w.prefix), after...))
	}
	w.it = q.state.Iter(lower, projections.PrefixEnd(w.prefix))
	return w, nil
}

func (w *trendingWalk) close() error {
	err := w.it.Close()
	if w.shownPins != nil {
		err = errors.Join(err, w.shownPins.Close())
	}
	return err
}

// isOverLimit reports whether the walk has read more than maxRows rows. What it has returned is
// then incomplete.
func (w *trendingWalk) isOverLimit() bool { return w.maxRows > 0 && w.q.rowsRead > w.maxRows }

// takeShown returns the next n sort keys of items that are shown.
func (w *trendingWalk) takeShown(ctx context.Context, s Scope, n int) (sortKeys [][]byte, err error) {
	if err := w.advanceVersion(ctx); err != nil {
		return nil, err
	}
	for len(sortKeys) < n && !w.isOverLimit() {
		sortKey, err := w.nextSortKey(ctx)
		if err != nil || sortKey == nil {
			return sortKeys, err
		}
		shown, err := w.isShown(ctx, s, sortKey)
		if err != nil {
			return nil, err
		}
		if shown {
			sortKeys = append(sortKeys, sortKey)
		}
	}
	return sortKeys, nil
}

// isShown reports whether a living pin shows the item of a sort key, on the board of the scope if
// it has one. In the global list every item is shown.
func (w *trendingWalk) isShown(ctx context.Context, s Scope, sortKey []byte) (bool, error) {
	if w.shownPins == nil {
		return true, nil
	}
	item, _, _, err := cutSortKey(sortKey)
	if err != nil {
		return false, err
	}

	prefix := projections.AppendKey(nil, tagShownItem, s.Owner, item)
	pins := w.shownPins
	for ok := pins.SeekGE(prefix); ok && bytes.HasPrefix(pins.Key(), prefix); ok = pins.Next() {
		if err := w.q.countRow(ctx); err != nil {
			return false, err
		}
		if s.Board == nil || string(pins.Value()) == *s.Board {
			return true, nil
		}
	}
	if err := pins.Error(); err != nil {
		return false, err
	}
	return false, w.q.countRow(ctx) // the seek read a row, too
}

// advanceVersion moves nextVersion to the next entry by score that holds at the position of the
// session.
func (w *trendingWalk) advanceVersion(ctx context.Context) error {
	w.nextVersion = nil
	for !w.isOverLimit() && w.it.Next() {
		if err := w.q.countRow(ctx); err != nil {
			return err
		}

		rest := w.it.Key()[len(w.prefix):]
		_, _, from, err := cutScoreEntry(rest)
		if err != nil {
			return err
		}
		to, err := decodeVersionEnd(w.it.Value())
		if err != nil {
			return err
		}
		if from <= w.session.seq && w.session.seq < to {
			w.nextVersion = bytes.Clone(rest[:len(rest)-8]) // without the position from
			return nil
		}
	}
	return w.it.Error()
}

// nextSortKey returns the next sort key, or nil if the list ends.
func (w *trendingWalk) nextSortKey(ctx context.Context) (sortKey []byte, err error) {
	if len(w.namedSortKeys) > 0 {
		named := w.namedSortKeys[0]
		if w.nextVersion == nil || bytes.Compare(named, w.nextVersion) < 0 {
			w.namedSortKeys = w.namedSortKeys[1:]
			return named, nil
		}
	}
	if w.nextVersion == nil {
		return nil, nil
	}
	sortKey = w.nextVersion
	return sortKey, w.advanceVersion(ctx)
}

// readNamedItems looks up the scores of the items that the list has by name.
func (w *trendingWalk) readNamedItems(ctx context.Context, prefix, after []byte) (err error) {
	var items []string
	it := w.q.state.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && !w.isOverLimit() && it.Next() {
		var item string
		if item, err = cutLastID(it.Key()[len(prefix):]); err == nil {
			items = append(items, item)
			err = w.q.countRow(ctx)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil || len(items) == 0 {
		return err
	}
	w.namedSortKeys, err = w.q.sortKeysOfItems(ctx, items, w.session, after)
	return err
}
