// Package hiddenitems has the rows of the items that users hide. The inbox and the seen store have
// the same rows, each under its own tags, so that a feed leaves out what its reader hides while the
// other store is being built.
//
//	A i         fact    what is known about the hiding of i by A: see relation.Facts
//	A ^since i  -       A hides i since then; ^ is the complement of a time in 8 bytes, so that newer rows come first
//	A           count   how many items A hides (I7)
//
// The home of all of them is A. No item is evicted: which one that would be would depend on the
// order of arrival.
package hiddenitems

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/relation"
)

// Max is how many items a user may hide. Publish refuses what goes beyond it; a fold does not look
// at it.
const Max = 100_000

// Tags are the tags of the rows in one store.
type Tags struct{ Fact, List, Count projections.Tag }

// Forms describes the rows for people.
func (t Tags) Forms() map[projections.Tag]projections.RowForm {
	return map[projections.Tag]projections.RowForm{
		t.Fact:  {Name: "item-hiding", Parts: "A i", Value: describeFact},
		t.List:  {Name: "hidden-item", Parts: "A ^since i"},
		t.Count: {Name: "hidden-count", Parts: "A", Value: describeCount},
	}
}

// decodeFact reads the facts about the hiding of an item. Its end is an item_shown.
func decodeFact(row []byte) (relation.Facts, error) { return relation.Decode("item hiding", row) }

func describeFact(d *projections.Description, row []byte) error {
	f, err := decodeFact(row)
	if err != nil {
		return err
	}
	f.Describe(d, "shown")
	return nil
}

func describeCount(d *projections.Description, row []byte) error {
	n, err := decodeCount(row)
	d.Int("count", n)
	return err
}

// versionCount is the first byte of a count. The count follows.
const versionCount = 1

func appendCount(dst []byte, n int64) []byte {
	return binary.AppendUvarint(append(dst, versionCount), uint64(n))
}

func decodeCount(row []byte) (int64, error) {
	if len(row) < 2 || row[0] != versionCount {
		return 0, projections.RowError("count of hidden items", row)
	}
	n, size := projections.Uvarint(row[1:])
	if size != len(row)-1 || n == 0 || n > math.MaxInt64 {
		return 0, projections.RowError("count of hidden items", row)
	}
	return int64(n), nil
}

// Fold folds item_hidden and item_shown, and the deletion of users. It has scratch memory.
type Fold struct {
	tags       Tags
	key, value []byte
}

// NewFold returns the fold into rows with the tags.
func NewFold(tags Tags) Fold { return Fold{tags: tags} }

// Apply folds an item_hidden or item_shown. The caller leaves out backfills about a deleted user.
func (f *Fold) Apply(ev *events.Event, b *projections.Batch) error {
	f.key = projections.AppendKey(f.key[:0], f.tags.Fact, ev.User, ev.Item)
	row, known, err := b.Get(f.key)
	if err != nil {
		return err
	}
	var before relation.Facts
	if known {
		if before, err = decodeFact(row); err != nil {
			return err
		}
	}

	after := before
	switch {
	case ev.Kind == events.ItemShown: // always live: history has no endings
		after.LiveTime = 0
		after.HasLiveEnd = true
	case ev.Backfill:
		after.BackfillTime = max(before.BackfillTime, ev.Time)
	case before.LiveTime == 0:
		after.LiveTime = ev.Time
	}
	if after.HasLiveEnd {
		after.BackfillTime = 0 // it does not count any more
		if b.BackfillsClosed() && after.LiveTime == 0 {
			after = relation.Facts{} // the end was kept only for late history
		}
	}
	if after == before {
		return nil
	}

	if after == (relation.Facts{}) {
		b.Delete(f.key)
	} else {
		f.value = after.AppendRow(f.value[:0])
		b.Set(f.key, f.value)
	}
	return f.writeList(ev.User, ev.Item, before, after, b)
}

// writeList writes the entry of an item in the list of a user, and the length of the list, as far
// as they change (I7).
func (f *Fold) writeList(user, item string, before, after relation.Facts, b *projections.Batch) error {
	if before.Holds() == after.Holds() && before.Since() == after.Since() {
		return nil
	}

	// The key of an entry has the time since which the item is hidden, so another time moves it.
	delta := int64(0)
	if before.Holds() {
		delta--
		f.key = f.tags.listKey(f.key[:0], user, before.Since(), item)
		b.Delete(f.key)
	}
	if after.Holds() {
		delta++
		f.key = f.tags.listKey(f.key[:0], user, after.Since(), item)
		b.Set(f.key, nil)
	}
	if delta == 0 {
		return nil
	}

	count, err := f.tags.CountOf(b, user)
	if err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], f.tags.Count, user)
	if count += delta; count < 0 {
		return projections.RowError("count below zero", f.key)
	}
	if count == 0 {
		b.Delete(f.key)
		return nil
	}
	f.value = appendCount(f.value[:0], count)
	b.Set(f.key, f.value)
	return nil
}

// Erase deletes the rows of a user who is deleted, in steps.
func (f *Fold) Erase(user string, b *projections.Batch) error {
	for _, tag := range []projections.Tag{f.tags.Fact, f.tags.List} {
		prefix := projections.AppendKey(nil, tag, user)
		err := b.EraseRows(prefix, func(rest []byte) error {
			f.key = append(append(f.key[:0], prefix...), rest...)
			b.Delete(f.key)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.key = projections.AppendKey(f.key[:0], f.tags.Count, user)
	b.Delete(f.key)
	return nil
}

func (t Tags) listKey(dst []byte, user string, since events.Micros, item string) []byte {
	dst = binary.BigEndian.AppendUint64(projections.AppendKey(dst, t.List, user), ^uint64(since))
	return events.AppendID(dst, item)
}

// CountOf returns how many items a user hides, with one point read.
func (t Tags) CountOf(r projections.Reader, user string) (int64, error) {
	row, ok, err := r.Get(projections.AppendKey(nil, t.Count, user))
	if err != nil || !ok {
		return 0, err
	}
	return decodeCount(row)
}

// Hides reports whether a user hides an item, with one point read. key is scratch memory.
func (t Tags) Hides(r projections.Reader, key *[]byte, user, item string) (bool, error) {
	*key = projections.AppendKey((*key)[:0], t.Fact, user, item)
	row, ok, err := r.Get(*key)
	if err != nil || !ok {
		return false, err
	}
	f, err := decodeFact(row)
	return f.Holds(), err
}

// Item is an item that a user hides, and since when.
type Item struct {
	Item  string
	Since events.Micros
}

// ErrCursor is returned for bytes that are not a cursor of a list.
var ErrCursor = errors.New("hiddenitems: not a cursor of this list")

// Page returns at most n items that a user hides, newest first, equal times by id. after is the
// cursor of the page; nil means the first page. next is the cursor of the next page, or nil on the
// last one.
func (t Tags) Page(ctx context.Context, r projections.Reader, user string, after []byte, n int) (items []Item, next []byte, err error) {
	prefix := projections.AppendKey(nil, t.List, user)
	from := prefix
	if after != nil {
		if _, err := cutListKey(after); err != nil {
			return nil, nil, ErrCursor
		}
		from = append(append(bytes.Clone(prefix), after...), 0) // no key lies between the last entry and this
	}

	it := r.Iter(from, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next() {
		// There is one more item than the page has, so there is a next page.
		if len(items) == n {
			return items, next, nil
		}
		if len(items)%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}

		entry := it.Key()[len(prefix):]
		item, err := cutListKey(entry)
		if err != nil {
			return nil, nil, err
		}
		items = append(items, item)
		next = append(next[:0], entry...)
	}
	return items, nil, nil
}

// cutListKey decodes what follows the user in the key of a list row.
func cutListKey(rest []byte) (item Item, err error) {
	if len(rest) < 8 {
		return item, projections.RowError("key of a hidden item", rest)
	}
	item.Since = events.Micros(^binary.BigEndian.Uint64(rest))
	item.Item, rest, err = events.CutID(rest[8:])
	if err == nil && len(rest) != 0 {
		err = projections.RowError("key of a hidden item", rest)
	}
	return item, err
}
