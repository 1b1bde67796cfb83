package graph

import (
	"encoding/hex"
	"testing"

	"github.com/skein-feed/skein/projections"
)

// TestGoldenKeys pins the keys on disk, in physical order.
func TestGoldenKeys(t *testing.T) {
	const owner, uuid = "42", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	for _, c := range []struct {
		name string
		key  []byte
		want string
	}{
		{"edge", projections.AppendKey(nil, tagEdge, owner, "ann"), "10" + "01000000000000002a" + "03616e6e00"},
		{"board edge", boardEdgeKey(nil, owner, uuid, ""), "11" + "01000000000000002a" + "026ba7b8109dad11d180b400c04fd430c8" + "0300"},
		{"held", heldKey(nil, owner, "7", "x", relation{relationFollow, 258}), "12" + "01000000000000002a" + "010000000000000007" + "01" + "0000000000000102" + "037800"},
		{"following", listKey(nil, tagFollowing, owner, 258, "7"), "13" + "01000000000000002a" + "fffffffffffffefd" + "010000000000000007"},
		{"followed board", boardListKey(nil, tagFollowedBoards, owner, 258, "7", "x"), "15" + "01000000000000002a" + "fffffffffffffefd" + "010000000000000007" + "037800"},
		{"counts", projections.AppendKey(nil, tagUserCounts, owner), "19" + "01000000000000002a"},
		{"board", projections.AppendKey(nil, tagBoard, owner, "x"), "1d" + "01000000000000002a" + "037800"},
		{"board follower", ofBoardKey(nil, tagBoardFollowers, owner, "x", 258, "7"), "20" + "01000000000000002a" + "037800" + "fffffffffffffefd" + "010000000000000007"},
		{"tombstone", tombstoneKey(nil, owner, [16]byte{1, 2}), "22" + "01020000000000000000000000000000"},
	} {
		const shard = "0242"
		if got := hex.EncodeToString(c.key); got != shard+c.want {
			t.Errorf("%s: %s, want %s", c.name, got, shard+c.want)
		}
	}
}
