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

// TestSortKeysCompareAsScoresThenIDs demands that sort keys compare as scores, the highest first,
// and then as ids, and that they decode to what was encoded.
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
			t.Fatalf("%d %s and %d %s compare as %d", scoreA, a, scoreB, b, got)
		}
		item, back, rest, err := cutSortKey(keyA)
		if item != a || back != scoreA || len(rest) != 0 || err != nil {
			t.Fatalf("%d %s became %d %s: %v", scoreA, a, back, item, err)
		}
	})
}

// TestForeignPageCursorsAreRefused demands that page cursors that no page of the list can have
// returned are refused.
func TestForeignPageCursorsAreRefused(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	l.add(newItemScored("a", 2), newItemScored("b", 1))
	v := mustView(t, l.s)
	defer v.Close()
	_, good, err := NewQueries(v).Trending(context.Background(), Scope{}, nil, 1)
	if err != nil || good == nil {
		t.Fatalf("%x: %v", good, err)
	}
	sortKey := appendSortKey(nil, "a", 2)
	now := session{v.Cursor().Seq, v.Cursor().LastTime}
	for name, m := range map[string]PageCursor{
		"empty": {}, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "of another kind": append(PageCursor{2}, good[1:]...),
		"later": session{now.seq + 1, now.time}.cursor(sortKey), "in the future": session{now.seq, now.time + 1}.cursor(sortKey),
		"long varint": append([]byte{cursorTrending, 0x81, 0, 1}, sortKey...),
	} {
		if _, _, err := NewQueries(v).Trending(context.Background(), Scope{}, m, 1); !errors.Is(err, ErrPageCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Random bytes are either no page cursor or one that encodes to the same bytes.
func FuzzPageCursors(f *testing.F) {
	f.Add([]byte(session{3, 4}.cursor(appendSortKey(nil, "a", -5))))
	f.Add([]byte(session{math.MaxUint64, math.MaxInt64}.cursor(appendSortKey(nil, "7", math.MinInt64))))
	f.Add([]byte{cursorTrending, 0x80, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, sortKey, err := parseTrendingCursor(data)
		if err == nil && !bytes.Equal(s.cursor(sortKey), data) {
			t.Errorf("%x came back as %x", data, s.cursor(sortKey))
		}
	})
}

// Values that decode encode to the same bytes, and no decoder panics.
func FuzzItemRows(f *testing.F) {
	row := itemRow{plays: 5, likes: 1, listsByScore: 64, hasScore: true, scoreFrom: 9}
	row.heat.Sum = row.heat.Sum.Add(1, 5, 1)
	row.score = row.heat.Score() - 4096
	f.Add(row.appendRow(nil))
	f.Add((&itemRow{repins: 1, hasScore: true, scoreFrom: 300, score: -5, heat: heat.Item{HasGivenScore: true, GivenScore: -5}}).appendRow(nil))
	f.Add((&itemRow{listsByScore: 1}).appendRow(nil))
	f.Add(boardDeletion{firstTime: 8, isDeleted: true}.appendRow(nil))
	f.Add((&endedVersion{item: "a", endedAt: 17, fromSeq: 3, score: -9, previous: 1}).appendRow(nil))
	f.Add(versionQueue{last: 300, length: 2, firstEndedAt: 17}.appendRow(nil))
	f.Add(appendUvarint(77))
	f.Add(relation.Facts{BackfillTime: 7, LiveTime: 9, HasLiveEnd: true}.AppendRow(nil))
	f.Add(scoreEntryKey(nil, nil, "a", -3, 3)[1:])
	f.Fuzz(func(t *testing.T, row []byte) {
		if it, err := decodeItem(row); err == nil && !bytes.Equal(it.appendRow(nil), row) {
			t.Errorf("item %x became %x", row, it.appendRow(nil))
		}
		if v, err := decodeEndedVersion(row); err == nil && !bytes.Equal(v.appendRow(nil), row) {
			t.Errorf("ended version %x became %x", row, v.appendRow(nil))
		}
		if q, err := decodeVersionQueue(row); err == nil && !bytes.Equal(q.appendRow(nil), row) {
			t.Errorf("queue %x became %x", row, q.appendRow(nil))
		}
		if to, err := decodeVersionEnd(row); err == nil && len(row) > 0 && !bytes.Equal(appendUvarint(to), row) {
			t.Errorf("end %x is %d", row, to)
		}
		if item, score, from, err := cutScoreEntry(row); err == nil && !bytes.Equal(scoreEntryKey(nil, nil, item, score, from)[1:], row) {
			t.Errorf("entry %x", row)
		}
		if l, err := decodeBoardDeletion(row); err == nil && !bytes.Equal(l.appendRow(nil), row) {
			t.Errorf("life %x became %x", row, l.appendRow(nil))
		}
		if r, err := decodeReaction(row); err == nil && !bytes.Equal(r.AppendRow(nil), row) {
			t.Errorf("reaction %x became %x", row, r.AppendRow(nil))
		}
		if item, kind, err := cutReaction(row); err == nil {
			if key := reactionKey(nil, "ann", item, kind); !bytes.Equal(key, append(reactionsPrefix(nil, itemPartition(item), "ann"), row...)) {
				t.Errorf("key of a reaction %x became %x", row, key)
			}
		}
		if since, item, err := cutSince(row); err == nil && !bytes.Equal(appendSince(nil, since, item), row) {
			t.Errorf("entry of a list of reactions %x", row)
		}
		_, _ = decodeCount(row)
		_, _ = projections.Text(DescribeRow(append(projections.AppendPrefix(nil, projections.StoreShard, tagGlobalList), row...), nil))
	})
}
