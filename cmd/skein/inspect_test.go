package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestRowCursorFindsAllRowsOfAUser demands that a cursor over the rows of a user in the seen store
// visits all of them. It seeks from one place that may have some to the next.
func TestRowCursorFindsAllRowsOfAUser(t *testing.T) {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

	// Behind the prefix, a key has the user, or the shard of the user and then the user.
	user := events.AppendID(nil, "ann")
	otherUser := events.AppendID(nil, "bob")
	shard := projections.AppendPrefix(nil, events.ShardOf("ann"), 0)[:2]
	otherShard := []byte{0, 0}
	lastShard := []byte{0x1f, 0xff}
	cursor := rowCursor{selected: [][]byte{user, join(shard, user)}}

	// A prefix is a month or a shard, and then a tag.
	month := []byte{2, 0xa8}
	nextMonth := []byte{2, 0xa9}
	tag := []byte{0x60}
	want := [][]byte{
		join(month, tag, shard, user),
		join(month, []byte{0x61}, shard, user),
		join(nextMonth, tag, shard, user),
		join(shard, []byte{0x62}, user),
		join(shard, []byte{0x63}, user, otherUser),
	}
	notSelected := [][]byte{
		join(month, tag, otherShard, otherUser),
		join(month, tag, shard, otherUser),
		join(month, tag, lastShard, user),
		join(shard, tag, otherUser),
		{1}, // shorter than a prefix
		{0xff, 0xff, 0},
		{0xff, 0xff, 0xff}, // there is no prefix after this one
	}
	keys := slices.Concat(want, notSelected)
	slices.SortFunc(keys, bytes.Compare)
	slices.SortFunc(want, bytes.Compare)

	// Walk over the keys as the cursor walks over a store.
	var got [][]byte
	for i := 0; i < len(keys); {
		isSelected, nextKey := cursor.match(keys[i])
		if isSelected {
			got = append(got, keys[i])
			i++
			continue
		}

		// Nothing that is selected can follow.
		if nextKey == nil {
			break
		}
		if bytes.Compare(nextKey, keys[i]) <= 0 {
			t.Fatalf("match(%x): got the next key %x, want one after it", keys[i], nextKey)
		}
		i, _ = slices.BinarySearchFunc(keys, nextKey, bytes.Compare)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of the user (-want +got):\n%s", diff)
	}
}
