package counters

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/projections"
)

// trendingWalk walks over the sort keys of a list at a position: the versions that stand in it and the items that it has by name, merged.
type trendingWalk struct {
	q       *Queries
	prefix  []byte
	session session
	it      projections.Iterator
	// shown reads what the owner's living pins show; nil in everybody's list, which has all.
	shownPins projections.Iterator
	// head is the next sort key of a version; nil means there is none.
	nextVersion []byte
	// byName are the sort keys of items by name that were not given yet, in order.
	namedSortKeys [][]byte
	// most rows are read; 0 means as many as it takes.
	maxRows int
}

// walk returns the first n sort keys of a list after one, in its order, of what is shown. ok is false where that took more rows than
// it may; 0 means it may take any number.
func (q *Queries) walkSortKeys(ctx context.Context, s Scope, at session, after []byte, n, most int) (sortKeys [][]byte, ok bool, err error) {
	w, err := q.newTrendingWalk(ctx, s, at, after, most)
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

// shownBy iterates over what living pins of an owner show.
func (q *Queries) shownPins(owner string) projections.Iterator {
	of := projections.AppendKey(nil, tagShownItem, owner)
	return q.state.Iter(of, projections.PrefixEnd(of))
}

func (q *Queries) newTrendingWalk(ctx context.Context, s Scope, at session, after []byte, most int) (*trendingWalk, error) {
	list := globalListPrefix()
	if s.Owner != "" {
		list = ownerListPrefix(s.Owner)
	}
	w := &trendingWalk{q: q, prefix: append(bytes.Clone(list), entryByScore), session: at, maxRows: most}
	if s.Owner != "" {
		if err := w.readNamedItems(ctx, append(bytes.Clone(list), entryByName), after); err != nil {
			return nil, err
		}
	}
	lower := w.prefix
	if after != nil {
		// Behind all versions that have the sort key.
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

// over reports whether the walk has read more rows than [trendingWalk.most].
func (w *trendingWalk) isOverLimit() bool { return w.maxRows > 0 && w.q.rowsRead > w.maxRows }

// take returns the next n sort keys of what is shown.
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

// shows reports whether the item of a sort key is shown: by a living pin, or in everybody's list.
func (w *trendingWalk) isShown(ctx context.Context, s Scope, sortKey []byte) (bool, error) {
	if w.shownPins == nil {
		return true, nil
	}
	item, _, _, err := cutSortKey(sortKey)
	if err != nil {
		return false, err
	}
	prefix := projections.AppendKey(nil, tagShownItem, s.Owner, item)
	for ok := w.shownPins.SeekGE(prefix); ok && bytes.HasPrefix(w.shownPins.Key(), prefix); ok = w.shownPins.Next() {
		if err := w.q.countRow(ctx); err != nil {
			return false, err
		}
		if s.Board == nil || string(w.shownPins.Value()) == *s.Board {
			return true, nil
		}
	}
	if err := w.shownPins.Error(); err != nil {
		return false, err
	}
	return false, w.q.countRow(ctx)
}

// advance moves to the next version that holds at the position.
func (w *trendingWalk) advanceVersion(ctx context.Context) error {
	for w.nextVersion = nil; !w.isOverLimit() && w.it.Next(); {
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
			w.nextVersion = bytes.Clone(rest[:len(rest)-8])
			return nil
		}
	}
	return w.it.Error()
}

// next returns the next sort key; nil means the list ends.
func (w *trendingWalk) nextSortKey(ctx context.Context) (sortKey []byte, err error) {
	if len(w.namedSortKeys) > 0 && (w.nextVersion == nil || bytes.Compare(w.namedSortKeys[0], w.nextVersion) < 0) {
		sortKey, w.namedSortKeys = w.namedSortKeys[0], w.namedSortKeys[1:]
		return sortKey, nil
	}
	if sortKey = w.nextVersion; sortKey == nil {
		return nil, nil
	}
	return sortKey, w.advanceVersion(ctx)
}

// readByName looks up the scores of the items that a list has by name.
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
