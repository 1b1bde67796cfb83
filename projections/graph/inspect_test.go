package graph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

func TestDescribeKey(t *testing.T) {
	const at = 1_700_000_000_000_001 // 2023-11-14T22:13:20.000001Z
	live, history := liveStamp|stamp(at+1), stamp(at+1)
	held := relation{relationExclude, at}
	for _, tt := range []struct {
		key, value []byte
		of         string
		want       string
	}{
		{
			projections.AppendKey(nil, tagEdge, "ann", "17"),
			(&edge{
				followLive: live, unfollowBackfill: history, block: standing{off: live}, mute: standing{backfill: history},
				blockedBy: true, boards: true,
			}).append(nil), "ann",
			"edge A=ann B=17 follow-live=AT unfollow-backfill=AT unblock-live=AT mute-backfill=AT blocked-by boards",
		},
		{
			boardEdgeKey(nil, "ann", "bob", "bread"), (&boardEdge{unfollowLive: live, followBackfill: history}).append(nil), "ann",
			"board-edge A=ann B=bob b=bread unfollow-live=AT follow-backfill=AT",
		},
		{heldKey(nil, "ann", "bob", "", held), nil, "ann", `held A=ann B=bob rel=exclude since=AT b=""`},
		{listKey(nil, tagFollowing, "ann", at, "bob"), nil, "ann", "following A=ann since=AT B=bob"},
		{listKey(nil, tagFollowingImplicit, "ann", at, "bob"), nil, "ann", "following-implicitly A=ann since=AT B=bob"},
		{boardListKey(nil, tagFollowedBoards, "ann", at, "bob", "b"), nil, "ann", "followed-board A=ann since=AT B=bob b=b"},
		{boardListKey(nil, tagExcludedBoards, "ann", at, "bob", "b"), nil, "ann", "excluded-board A=ann since=AT B=bob b=b"},
		{listKey(nil, tagBlocked, "ann", at, "bob"), nil, "ann", "blocked A=ann since=AT B=bob"},
		{listKey(nil, tagMuted, "ann", at, "bob"), nil, "ann", "muted A=ann since=AT B=bob"},
		{
			projections.AppendKey(nil, tagUserCounts, "ann"), appendCounts(nil, (&userRow{UserCounts: UserCounts{Followers: 3, Muted: 1}, kept: 1}).fields()), "ann",
			"user-counts A=ann followers=3 muted=1 kept=1",
		},
		{listKey(nil, tagFollowers, "bob", at, "ann"), nil, "bob", "follower B=bob since=AT A=ann"},
		{listKey(nil, tagFollowersImplicit, "bob", at, "ann"), nil, "bob", "implicit-follower B=bob since=AT A=ann"},
		{projections.AppendKey(nil, tagReverse, "bob", "ann"), nil, "bob", "reverse B=bob A=ann"},
		{
			projections.AppendKey(nil, tagBoard, "bob", "b"), (&board{createdLive: live, titled: live, title: "Bread & more"}).append(nil), "bob",
			`board B=bob b=b created-live=AT titled=AT title="Bread & more"`,
		},
		{
			projections.AppendKey(nil, tagBoardCounts, "bob", "b"), appendCounts(nil, (&BoardCounts{Excluders: 2}).fields()), "bob",
			"board-counts B=bob b=b excluders=2",
		},
		{listKey(nil, tagBoards, "bob", at, "b"), nil, "bob", "own-board B=bob created=AT b=b"},
		{ofBoardKey(nil, tagBoardFollowers, "bob", "b", at, "ann"), nil, "bob", "board-follower B=bob b=b since=AT A=ann"},
		{ofBoardKey(nil, tagBoardExcluders, "bob", "b", at, "ann"), nil, "bob", "board-excluder B=bob b=b since=AT A=ann"},
		{tombstoneKey(nil, "bob", [16]byte{0xab, 15: 1}), nil, "bob", "tombstone hash=ab000000000000000000000000000001"},
	} {
		want := fmt.Sprintf("%04x %s", uint16(events.ShardOf(tt.of)), replaceAt(tt.want))
		if got, err := DescribeKey(tt.key, tt.value); got != want || err != nil {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		// Neither a part of the row nor more than it is a row.
		for _, bad := range [][2][]byte{
			{tt.key[:len(tt.key)-1], tt.value},
			{append(append([]byte(nil), tt.key...), 0), tt.value},
			{tt.key, append(append([]byte(nil), tt.value...), 0xff)},
		} {
			if projections.Tag(bad[0][2]) == tagBoard && len(bad[1]) > len(tt.value) {
				continue // a title may have its encoding behind it
			}
			if got, err := DescribeKey(bad[0], bad[1]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("key %x, value %x: %q, %v, want ErrCorrupt", bad[0], bad[1], got, err)
			}
		}
	}
}

func replaceAt(s string) string { return strings.ReplaceAll(s, "=AT", "=2023-11-14T22:13:20.000001Z") }

// A row that another user's shard holds was never written by the fold.
func TestDescribeKeyForeignShard(t *testing.T) {
	key := projections.AppendKey(nil, tagUserCounts, "ann")
	key[1]++
	if got, err := DescribeKey(key, []byte{1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%q, %v", got, err)
	}
}

// Every kind of row that keys.go names can be described.
func TestDescribeKeyKnowsAllTags(t *testing.T) {
	for tag := projections.FirstGraphTag; tag <= tagTombstone; tag++ {
		if _, ok := rowForms[tag]; !ok {
			t.Errorf("tag %#x has no form", byte(tag))
		}
	}
	if len(rowForms) != int(tagTombstone-projections.FirstGraphTag)+1 {
		t.Errorf("%d forms", len(rowForms))
	}
}
