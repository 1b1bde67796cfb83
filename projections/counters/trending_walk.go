package counters

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/projections"
)

// trendingWalk walks over the sort keys of a list at a position: the versions that stand in it and the items that it has by name, merged.
type trendingWalk struct {
	q      *Queries
	prefix []byte
	at     session
	it     projections.Iterator
	// shown reads what the owner's living pins show; nil in everybody's list, which has all.
	shown projections.Iterator
	// head is the next sort key of a version; nil means there is none.
	head []byte
	// byName are the sort keys of items by name that were not given yet, in order.
	byName [][]byte
	// most rows are read; 0 means as many as it takes.
	most int
}

// walk returns the first n sort keys of a list after one, in its order, of what is shown. ok is false where that took more rows than
// it may; 0 means it may take any number.
func (q *Queries) walk(ctx context.Context, s Scope, at session, after []byte, n, most int) (sortKeys [][]byte, ok bool, err error) {
	w, err := q.newTrendingWalk(ctx, s, at, after, most)
	if err != nil {
		return nil, false, err
	}
	if s.Owner != "" {
		w.shown = q.shownBy(s.Owner)
	}
	sortKeys, err = w.take(ctx, s, n)
	if cerr := w.close(); err == nil {
		err = cerr
	}
	return sortKeys, !w.over(), err
}

// shownBy iterates over what living pins of an owner show.
func (q *Queries) shownBy(owner string) projections.Iterator {
	of := projections.AppendKey(nil, tagShown, owner)
	return q.r.Iter(of, projections.PrefixEnd(of))
}

func (q *Queries) newTrendingWalk(ctx context.Context, s Scope, at session, after []byte, most int) (*trendingWalk, error) {
	list := topPrefix()
	if s.Owner != "" {
		list = ownerTopPrefix(s.Owner)
	}
	w := &trendingWalk{q: q, prefix: append(bytes.Clone(list), entryVersion), at: at, most: most}
	if s.Owner != "" {
		if err := w.readByName(ctx, append(bytes.Clone(list), entryName), after); err != nil {
			return nil, err
		}
	}
	lower := w.prefix
	if after != nil {
		// Behind all versions that have the sort key.
		lower = projections.PrefixEnd(append(bytes.Clone(w.prefix), after...))
	}
	w.it = q.r.Iter(lower, projections.PrefixEnd(w.prefix))
	return w, nil
}

func (w *trendingWalk) close() error {
	err := w.it.Close()
	if w.shown != nil {
		err = errors.Join(err, w.shown.Close())
	}
	return err
}

// over reports whether the walk has read more rows than [trendingWalk.most].
func (w *trendingWalk) over() bool { return w.most > 0 && w.q.rows > w.most }

// take returns the next n sort keys of what is shown.
func (w *trendingWalk) take(ctx context.Context, s Scope, n int) (sortKeys [][]byte, err error) {
	if err := w.advance(ctx); err != nil {
		return nil, err
	}
	for len(sortKeys) < n && !w.over() {
		sortKey, err := w.next(ctx)
		if err != nil || sortKey == nil {
			return sortKeys, err
		}
		shown, err := w.shows(ctx, s, sortKey)
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
func (w *trendingWalk) shows(ctx context.Context, s Scope, sortKey []byte) (bool, error) {
	if w.shown == nil {
		return true, nil
	}
	item, _, _, err := cutSortKey(sortKey)
	if err != nil {
		return false, err
	}
	prefix := projections.AppendKey(nil, tagShown, s.Owner, item)
	for ok := w.shown.SeekGE(prefix); ok && bytes.HasPrefix(w.shown.Key(), prefix); ok = w.shown.Next() {
		if err := w.q.count(ctx); err != nil {
			return false, err
		}
		if s.Board == nil || string(w.shown.Value()) == *s.Board {
			return true, nil
		}
	}
	if err := w.shown.Error(); err != nil {
		return false, err
	}
	return false, w.q.count(ctx)
}

// advance moves to the next version that holds at the position.
func (w *trendingWalk) advance(ctx context.Context) error {
	for w.head = nil; !w.over() && w.it.Next(); {
		if err := w.q.count(ctx); err != nil {
			return err
		}
		rest := w.it.Key()[len(w.prefix):]
		_, _, from, err := cutVersionEntry(rest)
		if err != nil {
			return err
		}
		to, err := decodeTo(w.it.Value())
		if err != nil {
			return err
		}
		if from <= w.at.seq && w.at.seq < to {
			w.head = bytes.Clone(rest[:len(rest)-8])
			return nil
		}
	}
	return w.it.Error()
}

// next returns the next sort key; nil means the list ends.
func (w *trendingWalk) next(ctx context.Context) (sortKey []byte, err error) {
	if len(w.byName) > 0 && (w.head == nil || bytes.Compare(w.byName[0], w.head) < 0) {
		sortKey, w.byName = w.byName[0], w.byName[1:]
		return sortKey, nil
	}
	if sortKey = w.head; sortKey == nil {
		return nil, nil
	}
	return sortKey, w.advance(ctx)
}

// readByName looks up the scores of the items that a list has by name.
func (w *trendingWalk) readByName(ctx context.Context, prefix, after []byte) (err error) {
	var items []string
	it := w.q.r.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && !w.over() && it.Next() {
		var item string
		if item, err = cutLast(it.Key()[len(prefix):]); err == nil {
			items = append(items, item)
			err = w.q.count(ctx)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil || len(items) == 0 {
		return err
	}
	w.byName, err = w.q.sortKeysOf(ctx, items, w.at, after)
	return err
}
