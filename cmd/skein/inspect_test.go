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
	of := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	month, tag := []byte{2, 0xa8}, []byte{0x60}
	other := events.AppendID(nil, "bob")
	keys := [][]byte{
		of(month, tag, []byte{0, 0}, other), of(month, tag, shard, other), of(month, tag, []byte{0x1f, 0xff}, id),
		of(shard, tag, other), of([]byte{0xff, 0xff, 0}),
		{1},
		{0xff, 0xff, 0xff},
	}
	wanted := [][]byte{
		of(month, tag, shard, id), of(month, []byte{0x61}, shard, id), of([]byte{2, 0xa9}, tag, shard, id), of(shard, []byte{0x62}, id),
		of(shard, []byte{0x63}, id, other),
	}
	keys = append(keys, wanted...)
	slices.SortFunc(keys, bytes.Compare)
	slices.SortFunc(wanted, bytes.Compare)
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
	if !slices.EqualFunc(got, wanted, bytes.Equal) {
		t.Errorf("expected the keys %x, got %x", wanted, got)
	}
}
