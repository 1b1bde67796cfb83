package counters

import (
	"bytes"
	"context"
	"slices"
)

// The entries of a list by heat are at the homes of their items, and only the owner's home knows which of them a living pin shows. Where
// these are not in one state, a page is gathered: each state gives its next candidates, and the owner's decides.
//
//	candidates of state 1 ─┐
//	candidates of state 2 ─┼─► merged, up to the first last one of a state that has more ─► shown? ─► the page
//	candidates of state 3 ─┘

// CandidatePart is the next entries of a list by heat that a state has, shown or not, in order, and whether it has more.
type CandidatePart struct {
	Items []TrendingItem
	More  bool
}

// Candidates returns at most n entries of the list of an owner, or everybody's, after a sort key (nil: from the top), that the state has,
// by the scores as of a position.
func (q *Queries) Candidates(ctx context.Context, owner string, seq uint64, after []byte, n int) (part CandidatePart, err error) {
	w, err := q.newTrendingWalk(ctx, Scope{Owner: owner}, session{seq: seq}, after, 0)
	if err != nil {
		return part, err
	}
	sortKeys, err := w.takeShown(ctx, Scope{}, n+1)
	if cerr := w.close(); err == nil {
		err = cerr
	}
	if len(sortKeys) > n {
		sortKeys, part.More = sortKeys[:n], true
	}
	for _, sortKey := range sortKeys {
		item, score, _, err := cutSortKey(sortKey)
		if err != nil {
			return part, err
		}
		part.Items = append(part.Items, TrendingItem{item, score})
	}
	return part, err
}

// maxCandidates is how many entries are asked of a state at once where most of them are not shown.
const maxCandidates = 1000

// gather returns the first n sort keys of a list after one, of candidates from here and elsewhere.
func (q *Queries) gatherSortKeys(ctx context.Context, s Scope, at session, after []byte, n int) (sortKeys [][]byte, err error) {
	want, shown := n, &trendingWalk{q: q}
	if s.Owner != "" {
		shown.shownPins = q.shownPins(s.Owner)
		defer func() {
			if cerr := shown.shownPins.Close(); err == nil {
				err = cerr
			}
		}()
	}
	for {
		here, err := q.Candidates(ctx, s.Owner, at.seq, after, n)
		if err != nil {
			return nil, err
		}
		parts, known := q.remote.Candidates(s.Owner, at.seq, after, n)
		if !known {
			return nil, nil // what is here would be in the wrong places
		}
		batch, last := mergeCandidates(append(parts, here))
		for _, sortKey := range batch {
			ok, err := shown.isShown(ctx, s, sortKey)
			if err != nil {
				return nil, err
			}
			if ok {
				sortKeys = append(sortKeys, sortKey)
			}
			if len(sortKeys) == want {
				return sortKeys, nil
			}
		}
		if last == nil {
			return sortKeys, nil
		}
		after, n = last, min(2*n, maxCandidates)
	}
}

// mergeCandidates merges parts up to the sort key up to which none of them lacks an entry; nil means that there are no more at all.
func mergeCandidates(parts []CandidatePart) (sortKeys [][]byte, last []byte) {
	for _, p := range parts {
		for i, item := range p.Items {
			sortKey := appendSortKey(nil, item.Item, item.Score)
			sortKeys = append(sortKeys, sortKey)
			if p.More && i == len(p.Items)-1 && (last == nil || bytes.Compare(sortKey, last) < 0) {
				last = sortKey
			}
		}
	}
	slices.SortFunc(sortKeys, bytes.Compare)
	sortKeys = slices.CompactFunc(sortKeys, bytes.Equal)
	if last != nil {
		end, _ := slices.BinarySearchFunc(sortKeys, last, bytes.Compare)
		sortKeys = sortKeys[:end+1]
	}
	return sortKeys, last
}
