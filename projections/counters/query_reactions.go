package counters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// MaxKinds is how many kinds of reactions an answer has of one item.
const MaxKinds = 16

// OwnReactions returns the kinds with which a user reacts to an item, private ones included, by
// their names: the first [MaxKinds] if there are more. Kinds are those of [events.Event.Reaction].
func (q *Queries) OwnReactions(user, item string) (kinds []string, err error) {
	if q.isRemote(item) {
		kinds, _ = q.remote.OwnReactions(user, item)
		return kinds, nil
	}

	prefix := ownReactionsPrefix(nil, user, item)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	// The rows are in the order of the names, except that likes, which are stored without a name,
	// come first. So one more than is returned is enough to know the first ones.
	for len(kinds) <= MaxKinds && it.Next() {
		kind, rest, err := cutReactionKind(it.Key()[len(prefix):])
		if err != nil || len(rest) != 0 {
			return nil, cmp.Or(err, projections.RowError("reaction", it.Key()))
		}
		r, err := decodeReaction(it.Value())
		if err != nil {
			return nil, err
		}
		if r.Holds() {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, compareKinds)
	return kinds[:min(len(kinds), MaxKinds)], nil
}

// compareKinds orders kinds by their names.
func compareKinds(a, b string) int {
	return cmp.Compare(events.ReactionName(a), events.ReactionName(b))
}

// ReactionCount is the number of users who react to an item with a kind.
type ReactionCount struct {
	// Kind is that of [events.Event.Reaction].
	Kind  string
	Count int64
}

// ReactionCounts returns the numbers of users who react to an item with the given kinds, in that
// order. If no kinds are given, it returns those of the first [MaxKinds] kinds by name that users
// react with. counts are the counts of the item.
func (q *Queries) ReactionCounts(item string, counts ItemCounts, kinds []string) (list []ReactionCount, err error) {
	if len(kinds) == 0 {
		return q.firstReactionCounts(item, counts)
	}

	list = make([]ReactionCount, len(kinds))
	for i, kind := range kinds {
		list[i].Kind = kind
		switch {
		case kind == "":
			list[i].Count = counts.Likes
		case counts.OtherKinds > 0 && !events.IsPrivateReaction(kind):
			if list[i].Count, err = readCount(q.state, reactionCountKey(nil, item, kind)); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// firstReactionCounts returns the counts of the first [MaxKinds] kinds by name.
func (q *Queries) firstReactionCounts(item string, counts ItemCounts) (list []ReactionCount, err error) {
	if counts.Likes > 0 {
		list = append(list, ReactionCount{Count: counts.Likes})
	}
	if counts.OtherKinds == 0 {
		return list, nil
	}

	prefix := projections.AppendKey(nil, tagReactionCount, item)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	// The list may begin with the likes, whose place by name is another one. So one more than is
	// returned is read, as in OwnReactions.
	for len(list) <= MaxKinds && it.Next() {
		kind, rest, err := cutReactionKind(it.Key()[len(prefix):])
		if err != nil || len(rest) != 0 {
			return nil, cmp.Or(err, projections.RowError("number of reactions", it.Key()))
		}
		n, err := decodeCount(it.Value())
		if err != nil {
			return nil, err
		}
		list = append(list, ReactionCount{kind, n})
	}
	slices.SortFunc(list, func(a, b ReactionCount) int { return compareKinds(a.Kind, b.Kind) })
	return list[:min(len(list), MaxKinds)], nil
}

// ReactedItem is an item to which a user reacts.
type ReactedItem struct {
	Item  string
	Since events.Micros
}

// ReactionPart is the next items that one state has of the list of a user's reactions.
type ReactionPart struct {
	Items []ReactedItem
	// More says that the state has more items after these.
	More bool
}

// Reactions returns at most n items to which a user reacts with a kind, newest first, equal times
// by id. It begins after a page cursor, or at the newest item if after is nil. next is nil if there
// are no more items. Reactions fails with [ErrPageCursor].
func (q *Queries) Reactions(
	ctx context.Context, user, kind string, after PageCursor, n int,
) (items []ReactedItem, next PageCursor, err error) {
	// Each reaction is at the home of its item, so every node has a part of the list.
	local, err := q.LocalReactions(ctx, user, kind, after, n)
	if err != nil {
		return nil, nil, err
	}
	items = local.Items
	more := local.More
	if q.remote != nil {
		items, more = q.mergeReactions(local, user, kind, after, n)
	}

	if more {
		last := items[n-1]
		next = appendSince(PageCursor{cursorReacted}, last.Since, last.Item)
	}
	return items, next, nil
}

// mergeReactions merges the part of this state with those of remote ones, and returns the first n
// items.
func (q *Queries) mergeReactions(
	local ReactionPart, user, kind string, after PageCursor, n int,
) (items []ReactedItem, more bool) {
	parts, _ := q.remote.Reactions(user, kind, after, n)
	for _, p := range append(parts, local) {
		items = append(items, p.Items...)
		more = more || p.More
	}
	slices.SortFunc(items, func(a, b ReactedItem) int {
		return cmp.Or(
			cmp.Compare(b.Since, a.Since),
			bytes.Compare(events.AppendID(nil, a.Item), events.AppendID(nil, b.Item)),
		)
	})

	// Several nodes may have the same partition. A node at a later position may have an item at
	// another time.
	seen := map[string]bool{}
	items = slices.DeleteFunc(items, func(i ReactedItem) bool {
		again := seen[i.Item]
		seen[i.Item] = true
		return again
	})

	more = more || len(items) > n
	return items[:min(n, len(items))], more
}

// LocalReactions returns what this state has of the list of [Queries.Reactions].
func (q *Queries) LocalReactions(
	ctx context.Context, user, kind string, after PageCursor, n int,
) (part ReactionPart, err error) {
	part.More, err = q.eachReaction(ctx, reactedItemsPrefix(nil, user, kind), after, n, func(since events.Micros, item string) {
		part.Items = append(part.Items, ReactedItem{item, since})
	})
	return part, err
}

// Reactor is a user who reacts to an item.
type Reactor struct {
	User  string
	Since events.Micros
}

// ReactorPart is a part of the list of users who react to an item with a kind.
type ReactorPart struct {
	Reactors []Reactor
	// More says that there are more users after these.
	More bool
	// Total is the length of the whole list.
	Total int64
}

// Reactors returns at most n users who react to an item with a kind, newest first, equal times by
// id, and the length of the whole list. It begins after a page cursor, or at the newest reaction if
// after is nil. next is nil if there are no more users. The list of a private kind is empty.
// Reactors fails with [ErrPageCursor].
func (q *Queries) Reactors(
	ctx context.Context, item, kind string, after PageCursor, n int,
) (part ReactorPart, next PageCursor, err error) {
	if q.isRemote(item) {
		part, _ = q.remote.Reactors(item, kind, after, n)
	} else if part, err = q.LocalReactors(ctx, item, kind, after, n); err != nil {
		return part, nil, err
	}

	if part.More && len(part.Reactors) > 0 {
		last := part.Reactors[len(part.Reactors)-1]
		next = appendSince(PageCursor{cursorReacted}, last.Since, last.User)
	}
	return part, next, nil
}

// LocalReactors is Reactors for an item whose rows this state has.
func (q *Queries) LocalReactors(
	ctx context.Context, item, kind string, after PageCursor, n int,
) (part ReactorPart, err error) {
	counts, err := q.ItemCounts(item)
	if err != nil {
		return part, err
	}
	total, err := q.ReactionCounts(item, counts, []string{kind})
	if err != nil {
		return part, err
	}
	part.Total = total[0].Count
	part.More, err = q.eachReaction(ctx, reactorsPrefix(nil, item, kind), after, n, func(since events.Micros, user string) {
		part.Reactors = append(part.Reactors, Reactor{user, since})
	})
	return part, err
}

// eachReaction calls do with the first n entries of a list below a prefix, after a page cursor. It
// reports whether more entries follow.
func (q *Queries) eachReaction(
	ctx context.Context, prefix []byte, after PageCursor, n int, do func(since events.Micros, id string),
) (more bool, err error) {
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	var ok bool
	if after == nil {
		ok = it.Next()
	} else {
		sortKey, err := parseReactedCursor(after)
		if err != nil {
			return false, err
		}
		// The first key after that of the cursor is that key and a zero byte.
		ok = it.SeekGE(append(append(bytes.Clone(prefix), sortKey...), 0))
	}

	for count := 0; ok; ok = it.Next() {
		if count%1024 == 1023 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		if count == n {
			return true, nil
		}
		since, id, err := cutSince(it.Key()[len(prefix):])
		if err != nil {
			return false, err
		}
		do(since, id)
		count++
	}
	return false, nil
}
