package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestRowCursorFindsAllRowsOfAUser demands that a cursor over the rows of a user in the seen store
// visits all of them. It seeks from one place that may have some to the next.
func TestRowCursorFindsAllRowsOfAUser(t *testing.T) {
	id := events.AppendID(nil, "ann")
	shard := projections.AppendPrefix(nil, events.ShardOf("ann"), 0)[:2]
	rows := rowCursor{selected: [][]byte{id, append(bytes.Clone(shard), id...)}}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	month, tag := []byte{2, 0xa8}, []byte{0x60}
	otherUser := events.AppendID(nil, "bob")
	keys := [][]byte{
		join(month, tag, []byte{0, 0}, otherUser), join(month, tag, shard, otherUser), join(month, tag, []byte{0x1f, 0xff}, id),
		join(shard, tag, otherUser), join([]byte{0xff, 0xff, 0}),
		{1},
		{0xff, 0xff, 0xff},
	}
	want := [][]byte{
		join(month, tag, shard, id), join(month, []byte{0x61}, shard, id), join([]byte{2, 0xa9}, tag, shard, id), join(shard, []byte{0x62}, id),
		join(shard, []byte{0x63}, id, otherUser),
	}
	keys = append(keys, want...)
	slices.SortFunc(keys, bytes.Compare)
	slices.SortFunc(want, bytes.Compare)
	var got [][]byte
	for i := 0; i < len(keys); {
		isSelected, nextKey := rows.match(keys[i])
		if isSelected {
			got = append(got, keys[i])
			i++
			continue
		}
		if nextKey == nil {
			break
		}
		if bytes.Compare(nextKey, keys[i]) <= 0 {
			t.Fatalf("the next key after %x is %x, which is before it", keys[i], nextKey)
		}
		i, _ = slices.BinarySearchFunc(keys, nextKey, bytes.Compare)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("expected the keys %x, got %x", want, got)
	}
}
