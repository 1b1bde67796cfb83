package graph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestDescribeRowNamesEveryFieldThatIsSet demands that a description names every field that is set,
// and that a part of a row, and a row with more bytes, are corrupt.
func TestDescribeRowNamesEveryFieldThatIsSet(t *testing.T) {
	const at = 1_700_000_000_000_001 // 2023-11-14T22:13:20.000001Z
	live := liveBit | factOrder(at+1)
	history := factOrder(at + 1)
	for _, tt := range []struct {
		key, value []byte
		// home is the user in whose shard the row is: "" for the store's shard, "part" for the
		// first shard of bob's partition.
		home string
		want string
	}{
		{
			projections.AppendKey(nil, tagOutEdge, "ann", "17"),
			(&edge{
				followLive:        live,
				unfollowBackfill:  history,
				block:             toggle{liveEnd: live},
				mute:              muteFacts{toggle: toggle{backfillBegin: history}, backfillUntil: at},
				blockedBy:         toggle{liveBegin: live},
				settings:          settingsFact{live, events.SettingHideRepins | events.SettingFavorite},
				mayHaveBoardEdges: true,
			}).appendRow(nil), "ann",
			"edge A=ann B=17 follow-live=AT unfollow-backfill=AT unblock-live=AT mute-backfill=AT mute-backfill-until=AT " +
				"blocked-by-live=AT settings=AT hide-repins favorite boards",
		},
		{
			events.AppendID(outEnd.appendBoardEdgePrefix(nil, "ann", "bob"), "bread"),
			(&boardEdge{unfollowLive: live, followBackfill: history}).appendRow(nil),
			"ann",
			"board-edge A=ann B=bob b=bread unfollow-live=AT follow-backfill=AT",
		},
		{appendRegionKey(nil, "bob", "ann"), nil, "bob", "edge-of B=bob A=ann"},
		{
			appendRegionKey(nil, "bob", "ann"),
			[]byte{regionNotFollowed | regionBoardsOnly},
			"bob",
			"edge-of B=bob A=ann follows-not boards",
		},
		{
			appendBoardRegionKey(nil, "bob", "", "ann"),
			[]byte{regionNotFollowed},
			"bob",
			`board-edge-of B=bob b="" A=ann follows-not`,
		},
		{
			inEnd.appendEdgeKey(nil, "ann", "bob"),
			(&edge{followLive: live}).appendRow(nil),
			"part",
			"in-edge A=ann B=bob follow-live=AT",
		},
		{
			events.AppendID(inEnd.appendBoardEdgePrefix(nil, "ann", "bob"), "b"),
			(&boardEdge{followLive: live}).appendRow(nil),
			"part",
			"in-board-edge A=ann B=bob b=b follow-live=AT",
		},
		{
			projections.AppendKey(nil, tagUnlistedInBoardEdges, "bob", "b", "ann"),
			nil,
			"bob",
			"unlisted-in-board-edge B=bob b=b A=ann",
		},
		{
			append(appendStoreWideKey(nil, tagBoardDeletion, [16]byte{0xab}), make([]byte, 16)...),
			[]byte{byte(boardRecreated)},
			"",
			"board-deletion hash=ab000000000000000000000000000000 hash-of-board=00000000000000000000000000000000 lives-again",
		},
		{
			appendListKey(nil, tagFollowingExplicit, "ann", at, "bob"),
			nil,
			"ann",
			"following A=ann since=AT B=bob",
		},
		{
			appendListKey(nil, tagFollowingImplicit, "ann", at, "bob"),
			nil,
			"ann",
			"following-implicitly A=ann since=AT B=bob",
		},
		{
			appendListKey(nil, tagFollowingExplicit, "ann", at, "bob"),
			[]byte{2},
			"ann",
			"following A=ann since=AT B=bob notify",
		},
		{
			appendListKey(nil, tagTimedMutes, "ann", at, "bob"),
			appendDescendingTime(nil, at),
			"ann",
			"muted-until A=ann until=AT B=bob since=AT",
		},
		{appendListKey(nil, tagFavorites, "ann", at, "bob"), nil, "ann", "favorite A=ann since=AT B=bob"},
		{appendListKey(nil, tagNotifying, "ann", at, "bob"), nil, "ann", "notifying A=ann since=AT B=bob"},
		{
			appendBoardEntryKey(nil, tagFollowedBoards, "ann", at, "bob", "b"),
			nil,
			"ann",
			"followed-board A=ann since=AT B=bob b=b",
		},
		{
			appendBoardEntryKey(nil, tagExcludedBoards, "ann", at, "bob", "b"),
			nil,
			"ann",
			"excluded-board A=ann since=AT B=bob b=b",
		},
		{appendListKey(nil, tagBlocked, "ann", at, "bob"), nil, "ann", "blocked A=ann since=AT B=bob"},
		{appendListKey(nil, tagMuted, "ann", at, "bob"), nil, "ann", "muted A=ann since=AT B=bob"},
		{
			projections.AppendKey(nil, tagUserCounts, "ann"),
			appendCounts(nil, (&userCountsRow{
				UserCounts: UserCounts{Followers: 3, Muted: 1}, followingStored: 1,
			}).fields()),
			"ann",
			"user-counts A=ann followers=3 muted=1 kept=1",
		},
		{
			appendListKey(nil, tagFollowersExplicit, "bob", at, "ann"),
			nil,
			"bob",
			"follower B=bob since=AT A=ann",
		},
		{
			appendListKey(nil, tagFollowersImplicit, "bob", at, "ann"),
			nil,
			"bob",
			"implicit-follower B=bob since=AT A=ann",
		},
		{projections.AppendKey(nil, tagUnlistedInEdges, "bob", "ann"), nil, "bob", "unlisted-in-edge B=bob A=ann"},
		{
			projections.AppendKey(nil, tagBoard, "bob", "b"),
			(&boardRow{createdLive: live, titleOrder: live, title: "Bread & more"}).appendRow(nil),
			"bob",
			`board B=bob b=b created-live=AT titled=AT title="Bread & more"`,
		},
		{
			projections.AppendKey(nil, tagBoardCounts, "bob", "b"),
			appendCounts(nil, (&BoardCounts{Excluders: 2}).fields()),
			"bob",
			"board-counts B=bob b=b excluders=2",
		},
		{appendListKey(nil, tagBoards, "bob", at, "b"), nil, "bob", "own-board B=bob created=AT b=b"},
		{
			appendListOfBoardKey(nil, tagBoardFollowers, "bob", "b", at, "ann"),
			nil,
			"bob",
			"board-follower B=bob b=b since=AT A=ann",
		},
		{
			appendListOfBoardKey(nil, tagBoardExcluders, "bob", "b", at, "ann"),
			nil,
			"bob",
			"board-excluder B=bob b=b since=AT A=ann",
		},
		{
			appendStoreWideKey(nil, tagTombstone, [16]byte{0xab, 15: 1}),
			nil,
			"",
			"tombstone hash=ab000000000000000000000000000001",
		},
	} {
		kind, _, _ := strings.Cut(tt.want, " ")
		t.Run(kind, func(t *testing.T) {
			shard := projections.StoreShard
			switch tt.home {
			case "":
			case "part":
				shard = events.Shard(userPartition("bob")) << 5
			default:
				shard = events.ShardOf(tt.home)
			}
			want := fmt.Sprintf("%04x %s", uint16(shard), insertTestTime(tt.want))
			if got, err := projections.Text(DescribeRow(tt.key, tt.value)); got != want || err != nil {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
			// A row that is cut or has more bytes is corrupt.
			for _, bad := range [][2][]byte{
				{tt.key[:len(tt.key)-1], tt.value},
				{append(append([]byte(nil), tt.key...), 0), tt.value},
				{tt.key, append(append([]byte(nil), tt.value...), 0xff)},
			} {
				if projections.Tag(bad[0][2]) == tagBoard && len(bad[1]) > len(tt.value) {
					continue // the bytes of the event may follow a title
				}
				if got, err := projections.Text(DescribeRow(bad[0], bad[1])); !errors.Is(err, projections.ErrCorrupt) {
					t.Errorf("key %x, value %x: got %q, %v, want projections.ErrCorrupt", bad[0], bad[1], got, err)
				}
			}
		})
	}
}

// insertTestTime replaces AT in a description by the time of all test rows.
func insertTestTime(s string) string {
	return strings.ReplaceAll(s, "=AT", "=2023-11-14T22:13:20.000001Z")
}

// TestDescribeRowRefusesRowInForeignShard demands an error for a row in the shard of another user,
// which the fold never writes.
func TestDescribeRowRefusesRowInForeignShard(t *testing.T) {
	for _, key := range [][]byte{
		projections.AppendKey(nil, tagUserCounts, "ann"), appendRegionKey(nil, "bob", "ann"),
		inEnd.appendEdgeKey(nil, "ann", "bob"),
		appendStoreWideKey(nil, tagTombstone, [16]byte{}),
	} {
		value := []byte(nil)
		switch projections.Tag(key[2]) {
		case tagUserCounts:
			value = []byte{1}
		case tagInEdge:
			value = (&edge{mute: muteFacts{toggle: toggle{liveBegin: liveBit | 1}}}).appendRow(nil)
		}
		if _, err := projections.Text(DescribeRow(key, value)); err != nil {
			t.Errorf("row %x: got %v, want no error", key, err)
		}
		key[1]--
		if got, err := projections.Text(DescribeRow(key, value)); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("row in a foreign shard: got %q, %v, want projections.ErrCorrupt", got, err)
		}
	}
	remote := appendRegionKey(nil, "bob", "ann")
	remote[len(remote)-len(appendRegionHome(nil, "ann"))]++
	if got, err := projections.Text(DescribeRow(remote, nil)); !errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("row in a foreign partition: got %q, %v, want projections.ErrCorrupt", got, err)
	}
}

// TestDescribeRowKnowsAllTags demands that every kind of row in keys.go can be described.
func TestDescribeRowKnowsAllTags(t *testing.T) {
	for tag := projections.FirstGraphTag; tag <= tagNotifying; tag++ {
		if _, ok := rowForms[tag]; !ok {
			t.Errorf("tag %#x has no form", byte(tag))
		}
	}
	if len(rowForms) != int(tagNotifying-projections.FirstGraphTag)+1 {
		t.Errorf("got %d row forms, want one for each of the tags up to %#x", len(rowForms), tagNotifying)
	}
}
