package counters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
	"github.com/skein-feed/skein/projections/internal/relation"
)

// TestSortKeysCompareAsScoresThenIDs checks that sort keys compare as scores, the highest first, and
// then as ids, and that they decode to what was encoded.
func TestSortKeysCompareAsScoresThenIDs(t *testing.T) {
	score := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
	id := rapid.SampledFrom([]string{"a", "ab", "b", "7", "10", "007", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"})
	rapid.Check(t, func(t *rapid.T) {
		scoreA := score.Draw(t, "score")
		scoreB := score.Draw(t, "score")
		a := id.Draw(t, "id")
		b := id.Draw(t, "id")
		keyA := appendSortKey(nil, a, scoreA)
		keyB := appendSortKey(nil, b, scoreB)

		want := cmp.Or(cmp.Compare(scoreB, scoreA), events.CompareIDs(a, b))
		if got := bytes.Compare(keyA, keyB); got != cmp.Compare(want, 0) {
			t.Fatalf("the sort keys of %d %s and %d %s compare as %d, want %d", scoreA, a, scoreB, b, got, cmp.Compare(want, 0))
		}

		item, decoded, rest, err := cutSortKey(keyA)
		if err != nil {
			t.Fatalf("decode the sort key of %d %s: %v", scoreA, a, err)
		}
		if item != a || decoded != scoreA || len(rest) != 0 {
			t.Fatalf("the sort key of %d %s decodes as %d %s with the rest %x, want the same and no rest", scoreA, a, decoded, item, rest)
		}
	})
}

// TestForeignPageCursorsAreRefused checks that page cursors that no page of the list can have
// returned are refused.
func TestForeignPageCursorsAreRefused(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	l.add(newItemScored("a", 2), newItemScored("b", 1))
	v := mustView(t, l.s)
	defer v.Close()
	_, good, err := NewQueries(v).Trending(context.Background(), Scope{}, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if good == nil {
		t.Fatal("got no page cursor of the first page, want one")
	}

	sortKey := appendSortKey(nil, "a", 2)
	now := session{v.Cursor().Seq, v.Cursor().LastTime}
	for name, cursor := range map[string]PageCursor{
		"empty":           {},
		"cut":             good[:len(good)-1],
		"longer":          append(bytes.Clone(good), 0),
		"of another kind": append(PageCursor{2}, good[1:]...),
		"later":           session{now.seq + 1, now.time}.cursor(sortKey),
		"in the future":   session{now.seq, now.time + 1}.cursor(sortKey),
		"long varint":     append([]byte{cursorTrending, 0x81, 0, 1}, sortKey...),
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := NewQueries(v).Trending(context.Background(), Scope{}, cursor, 1); !errors.Is(err, ErrPageCursor) {
				t.Errorf("page cursor %x: got error %v, want %v", cursor, err, ErrPageCursor)
			}
		})
	}
}

// FuzzPageCursors checks that random bytes are either no page cursor, or one that encodes to the
// same bytes.
func FuzzPageCursors(f *testing.F) {
	f.Add([]byte(session{3, 4}.cursor(appendSortKey(nil, "a", -5))))
	f.Add([]byte(session{math.MaxUint64, math.MaxInt64}.cursor(appendSortKey(nil, "7", math.MinInt64))))
	f.Add([]byte{cursorTrending, 0x80, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, sortKey, err := parseTrendingCursor(data)
		if err == nil && !bytes.Equal(s.cursor(sortKey), data) {
			t.Errorf("page cursor %x encodes as %x, want the same bytes", data, s.cursor(sortKey))
		}
	})
}

// FuzzItemRows checks that values that decode encode to the same bytes, and that no decoder panics.
func FuzzItemRows(f *testing.F) {
	row := itemRow{plays: 5, likes: 1, listsByScore: 64, hasScore: true, scoreFrom: 9}
	row.heat.Sum = row.heat.Sum.Add(1, 5, 1)
	row.score = row.heat.Score() - 4096
	f.Add(row.appendRow(nil))
	f.Add((&itemRow{
		repins: 1, hasScore: true, scoreFrom: 300, score: -5, heat: heat.Item{HasGivenScore: true, GivenScore: -5},
	}).appendRow(nil))
	f.Add((&itemRow{listsByScore: 1}).appendRow(nil))
	f.Add(boardDeletion{firstTime: 8, isDeleted: true}.appendRow(nil))
	f.Add((&endedVersion{item: "a", endedAt: 17, fromSeq: 3, score: -9, previous: 1}).appendRow(nil))
	f.Add(versionQueue{last: 300, length: 2, firstEndedAt: 17}.appendRow(nil))
	f.Add(appendUvarint(77))
	f.Add(relation.Facts{BackfillTime: 7, LiveTime: 9, HasLiveEnd: true}.AppendRow(nil))
	f.Add(scoreEntryKey(nil, nil, "a", -3, 3)[1:])

	f.Fuzz(func(t *testing.T, row []byte) {
		check := func(what string, encoded []byte) {
			t.Helper()
			if !bytes.Equal(encoded, row) {
				t.Errorf("%s %x encodes as %x, want the same bytes", what, row, encoded)
			}
		}
		if it, err := decodeItem(row); err == nil {
			check("item", it.appendRow(nil))
		}
		if v, err := decodeEndedVersion(row); err == nil {
			check("ended version", v.appendRow(nil))
		}
		if q, err := decodeVersionQueue(row); err == nil {
			check("queue", q.appendRow(nil))
		}
		if to, err := decodeVersionEnd(row); err == nil && len(row) > 0 {
			check("end of a version", appendUvarint(to))
		}
		if item, score, from, err := cutScoreEntry(row); err == nil {
			check("entry by score", scoreEntryKey(nil, nil, item, score, from)[1:])
		}
		if l, err := decodeBoardDeletion(row); err == nil {
			check("deletion of a board", l.appendRow(nil))
		}
		if r, err := decodeReaction(row); err == nil {
			check("reaction", r.AppendRow(nil))
		}
		if item, kind, err := cutReaction(row); err == nil {
			prefix := reactionsPrefix(nil, itemPartition(item), "ann")
			if key := reactionKey(nil, "ann", item, kind); !bytes.Equal(key, append(prefix, row...)) {
				t.Errorf("key of the reaction %x: got %x, want the row after the prefix", row, key)
			}
		}
		if since, item, err := cutSince(row); err == nil {
			check("entry of a list of reactions", appendSince(nil, since, item))
		}

		// These only must not panic.
		_, _ = decodeCount(row)
		_, _ = projections.Text(DescribeRow(append(projections.AppendPrefix(nil, projections.StoreShard, tagGlobalList), row...), nil))
	})
}
