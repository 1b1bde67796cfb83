package graph

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestKeyEncodingIsPinned demands that the keys on disk do not change. The cases are in physical
// order.
func TestKeyEncodingIsPinned(t *testing.T) {
	const owner, uuid = "42", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	for _, c := range []struct {
		name string
		key  []byte
		want string
	}{
		{
			"edge",
			projections.AppendKey(nil, tagOutEdge, owner, "ann"),
			"10" + "01000000000000002a" + "03616e6e00",
		},
		{
			"board edge",
			events.AppendID(outEnd.appendBoardEdgePrefix(nil, owner, uuid), ""),
			"11" + "01000000000000002a" + "026ba7b8109dad11d180b400c04fd430c8" + "0300",
		},
		{
			"region",
			appendRegionKey(nil, owner, "7"),
			"12" + "01000000000000002a" + "SEVEN" + "010000000000000007",
		},
		{
			"board region",
			appendBoardRegionKey(nil, owner, "x", "7"),
			"24" + "01000000000000002a" + "037800" + "SEVEN" + "010000000000000007",
		},
		{
			"following",
			appendListKey(nil, tagFollowingExplicit, owner, 258, "7"),
			"13" + "01000000000000002a" + "fffffffffffffefd" + "010000000000000007",
		},
		{
			"followed board",
			appendBoardEntryKey(nil, tagFollowedBoards, owner, 258, "7", "x"),
			"15" + "01000000000000002a" + "fffffffffffffefd" + "010000000000000007" + "037800",
		},
		{"counts", projections.AppendKey(nil, tagUserCounts, owner), "19" + "01000000000000002a"},
		{"board", projections.AppendKey(nil, tagBoard, owner, "x"), "1d" + "01000000000000002a" + "037800"},
		{
			"board follower",
			appendListOfBoardKey(nil, tagBoardFollowers, owner, "x", 258, "7"),
			"20" + "01000000000000002a" + "037800" + "fffffffffffffefd" + "010000000000000007",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			const shard = "0242"
			want := shard + strings.ReplaceAll(c.want, "SEVEN", fmt.Sprintf("%02x", userPartition("7")))
			if got := hex.EncodeToString(c.key); got != want {
				t.Errorf("key %s, want %s", got, want)
			}
		})
	}
}

// TestKeyEncodingOfPartitionRowsIsPinned demands that the keys of rows that name their home last,
// and of rows of the store as a whole, do not change.
func TestKeyEncodingOfPartitionRowsIsPinned(t *testing.T) {
	hash := [16]byte{1, 2}
	for _, c := range []struct {
		name string
		key  []byte
		want string
	}{
		{
			"in-edge",
			inEnd.appendEdgeKey(nil, "7", "42"),
			"0240" + "25" + "010000000000000007" + "01000000000000002a",
		},
		{
			"in-board-edge",
			events.AppendID(inEnd.appendBoardEdgePrefix(nil, "7", "42"), "x"),
			"0240" + "26" + "010000000000000007" + "01000000000000002a" + "037800",
		},
		{
			"tombstone",
			appendStoreWideKey(nil, tagTombstone, hash),
			"ffff" + "22" + "01020000000000000000000000000000",
		},
		{
			"board deletion",
			append(appendStoreWideKey(nil, tagBoardDeletion, hash), hash[:]...),
			"ffff" + "23" + "01020000000000000000000000000000" + "01020000000000000000000000000000",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := hex.EncodeToString(c.key); got != c.want {
				t.Errorf("key %s, want %s", got, c.want)
			}
		})
	}
}

// TestRegionHomeIsTheLastUserOfTheKey demands that the home of a row in a region is the last user
// in its key, and that RegionHome refuses all other keys.
func TestRegionHomeIsTheLastUserOfTheKey(t *testing.T) {
	for _, key := range [][]byte{appendRegionKey(nil, "ann", "7"), appendBoardRegionKey(nil, "ann", "", "7")} {
		if p, ok := RegionHome(key); !ok || p != userPartition("7") {
			t.Errorf("home of %x: got partition %d, %v, want %d, true", key, p, ok, userPartition("7"))
		}
		cut := key[:len(key)-len(appendRegionHome(nil, "7"))]
		if _, ok := RegionHome(cut); ok {
			t.Errorf("key %x, which ends before the home, has a home, want none", cut)
		}
	}
	if _, ok := RegionHome(projections.AppendKey(nil, tagOutEdge, "ann", "7")); ok {
		t.Error("the key of an edge has a home in a region, want none")
	}
}
