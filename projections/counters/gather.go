package counters

import (
	"bytes"
	"context"
	"slices"
)

// The entries of a list by heat are at the homes of their items, and only the owner's home knows
// which of them a living pin shows. Where no single state has all of these homes, a page is
// gathered: each state returns its next candidates, and the state of the owner's home, which runs
// the query, decides which of them are shown.
//
//	candidates of state 1 ─┐
//	candidates of state 2 ─┼─► merged, cut where the first incomplete part ends ─► shown? ─► the page
//	candidates of state 3 ─┘

// CandidatePart is the next entries of a list by heat that one state has, in order, whether a
// living pin shows them or not.
type CandidatePart struct {
	Items []TrendingItem
	// More says that the state has more entries after Items.
	More bool
}

// Candidates returns at most n entries that this state has of the list of an owner, or of the
// global list if owner is empty. It returns those after the sort key, or from the top if after is
// nil, with the scores as of the position seq.
func (q *Queries) Candidates(
	ctx context.Context, owner string, seq uint64, after []byte, n int,
) (part CandidatePart, err error) {
	w, err := q.newTrendingWalk(ctx, Scope{Owner: owner}, session{seq: seq}, after, 0)
	if err != nil {
		return part, err
	}

	// This walk has no shownPins, so it takes all entries. One more than asked for shows whether
	// there are more.
	sortKeys, err := w.takeShown(ctx, Scope{}, n+1)
	if cerr := w.close(); err == nil {
		err = cerr
	}

	if len(sortKeys) > n {
		sortKeys = sortKeys[:n]
		part.More = true
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

// maxCandidates bounds the number of entries that each state is asked for at a time.
const maxCandidates = 1000

// gatherSortKeys returns the first n sort keys of a list after one, from the candidates of this
// state and of remote ones. ok is false if that took more than maxRows rows; 0 means no limit.
func (q *Queries) gatherSortKeys(
	ctx context.Context, s Scope, at session, after []byte, n, maxRows int,
) (sortKeys [][]byte, ok bool, err error) {
	// The walk is used only for isShown.
	walk := &trendingWalk{q: q}
	if s.Owner != "" {
		walk.shownPins = q.shownPins(s.Owner)
		defer func() {
			if cerr := walk.shownPins.Close(); err == nil {
				err = cerr
			}
		}()
	}

	batchSize := n
	for {
		local, err := q.Candidates(ctx, s.Owner, at.seq, after, batchSize)
		if err != nil {
			return nil, false, err
		}
		parts, known := q.remote.Candidates(s.Owner, at.seq, after, batchSize)
		if !known {
			return nil, true, nil // the query runs again once they are known; without them the order would be wrong
		}

		merged, last := mergeCandidates(append(parts, local))
		for _, sortKey := range merged {
			shown, err := walk.isShown(ctx, s, sortKey)
			if err != nil {
				return nil, false, err
			}
			if shown {
				sortKeys = append(sortKeys, sortKey)
			}
			if len(sortKeys) == n {
				return sortKeys, true, nil
			}
		}
		if last == nil {
			return sortKeys, true, nil
		}
		if maxRows > 0 && q.rowsRead > maxRows {
			return nil, false, nil
		}

		// Most candidates may not be shown, so each round asks for more of them.
		after = last
		batchSize = min(2*batchSize, maxCandidates)
	}
}

// mergeCandidates merges parts up to the sort key last, up to which no part lacks an entry. last is
// nil if no part has more entries.
func mergeCandidates(parts []CandidatePart) (sortKeys [][]byte, last []byte) {
	for _, p := range parts {
		for i, item := range p.Items {
			sortKey := appendSortKey(nil, item.Item, item.Score)
			sortKeys = append(sortKeys, sortKey)

			// A part that has more entries is complete up to its last item. Behind the first such
			// end, entries may be missing from the merge.
			isEnd := i == len(p.Items)-1
			if p.More && isEnd && (last == nil || bytes.Compare(sortKey, last) < 0) {
				last = sortKey
			}
		}
	}

	// Several states may have the same partition, and so the same entries.
	slices.SortFunc(sortKeys, bytes.Compare)
	sortKeys = slices.CompactFunc(sortKeys, bytes.Equal)
	if last != nil {
		end, _ := slices.BinarySearchFunc(sortKeys, last, bytes.Compare)
		sortKeys = sortKeys[:end+1]
	}
	return sortKeys, last
}
