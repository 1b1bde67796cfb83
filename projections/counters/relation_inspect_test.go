package counters

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/model/histories"
)

// isRelation reports whether a row is about relations.
func isRelation(key []byte) bool {
	return len(key) >= 3 && projections.Tag(key[2]) >= tagUserRelations && projections.Tag(key[2]) <= tagTombstone
}

// eachRelation calls do with the rows about relations.
func eachRelation(t failer, s *projections.Store, do func(key, value []byte)) {
	t.Helper()
	v := relationView(t, s)
	defer v.Close()
	it := v.Iter([]byte{0}, []byte{0xff, 0xff})
	for it.Next() {
		if isRelation(it.Key()) {
			do(it.Key(), it.Value())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("rows: %v", err)
	}
}

// TestRelationForms describes every row about relations that long histories make, and demands every kind among them.
func TestRelationForms(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(6) {
		s := relationStore(t, projections.Bounds{})
		foldRelations(t, s, histories.FixedFeeds(seed, 400))
		foldRelations(t, s, nil)
		eachRelation(t, s, func(key, value []byte) {
			text, err := projections.Describe(relationForms, key, value)
			if err != nil {
				t.Errorf("%x = %x: %v", key, value, err)
				return
			}
			seen[strings.Fields(text)[1]] = true
			if _, err := projections.Describe(relationForms, key[:len(key)-1], value); err == nil {
				t.Errorf("a cut key of %q is described", text)
			}
			other := bytes.Clone(key)
			other[1] ^= 1
			if _, err := projections.Describe(relationForms, other, value); err == nil && !strings.Contains(text, "tombstone") {
				t.Errorf("%q is described in a foreign shard", text)
			}
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range relationForms {
		if !seen[form.Name] {
			t.Errorf("no history makes a row of kind %s", form.Name)
		}
	}
}

func TestRelationDescriptions(t *testing.T) {
	at := rankOf(&events.Event{Kind: events.BoardFollowed, Time: histories.Start})
	past := rankOf(&events.Event{Kind: events.UserBlocked, Backfill: true})
	edge := binary.BigEndian.AppendUint64(nil, uint64(past))
	pair := pairRow{followed: at, unfollowed: past, mine: blockEnded, theirs: blockEnded, edges: 3, follows: 2}
	tally := userTally{userFollowing: 300, userExcludedBoards: 1}
	board := boardRow{boardAgain, boardTally{2, 0, 1}}
	for _, x := range []struct {
		key, value []byte
		want       string
	}{
		{projections.AppendKey(nil, tagUserRelations, "ann"), appendCounts(nil, tally[:]), "user-relations A=ann following=300 excluded-boards=1"},
		{projections.AppendKey(nil, tagBoardRelations, "bob", "art"), board.append(nil), "board-relations B=bob b=art lives-again followers=2 not-of-owner=1"},
		{projections.AppendKey(nil, tagPair, "ann", "bob"), pair.append(nil), "pair A=ann B=bob " +
			"followed=live-follow at=2023-11-14T22:13:20.000000Z unfollowed=imported-unfollow at=1970-01-01T00:00:00.000000Z " +
			"blocks=ended blocked-by=ended edges=3 followed-boards=2"},
		{projections.AppendKey(nil, tagFollower, "bob", "ann"), nil, "pair-of B=bob A=ann"},
		{projections.AppendKey(nil, tagEdge, "ann", "bob", ""), edge, `edge A=ann B=bob b="" fact=imported-unfollow at=1970-01-01T00:00:00.000000Z`},
		{rankKey(nil, "ann", "bob", at, "art"), nil, "edge-follows A=ann B=bob fact=live-follow at=2023-11-14T22:13:20.000000Z b=art"},
		{projections.AppendKey(nil, tagBoardEdge, "bob", "art", "ann"), nil, "edge-of B=bob b=art A=ann"},
		{tombstoneKey(nil, "ann", [16]byte{1}), nil, "tombstone hash=01000000000000000000000000000000"},
	} {
		got, err := projections.Describe(relationForms, x.key, x.value)
		if _, got, _ = strings.Cut(got, " "); err != nil || got != x.want {
			t.Errorf("got  %q\nwant %q\n%v", got, x.want, err)
		}
	}
}

// TestImpossibleRelations: rows that no fold can have written are not read.
func TestImpossibleRelations(t *testing.T) {
	follow, unfollow := []byte{0x80, 0, 0, 0, 0, 0, 0, 8}, []byte{0x80, 0, 0, 0, 0, 0, 0, 9}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, row := range map[string][]byte{
		"empty":                       {},
		"says nothing":                {0},
		"a flag too many":             join([]byte{0x81}, follow),
		"cut":                         join([]byte{pairFollowed}, follow[:7]),
		"too long":                    join([]byte{pairFollowed}, follow, []byte{0}),
		"an unfollow as a follow":     join([]byte{pairFollowed}, unfollow),
		"a follow as an unfollow":     join([]byte{pairUnfollowed}, follow),
		"a follow that was undone":    join([]byte{pairFollowed | pairUnfollowed}, follow, unfollow),
		"a rank of none":              join([]byte{pairFollowed}, make([]byte, 8)),
		"no edges":                    {pairEdges, 0, 0},
		"edges in a long form":        {pairEdges, 0x81, 0, 0},
		"more boards than edges":      {pairEdges, 1, 2},
		"boards of one who is barred": {pairEdges | pairMine*byte(blockImported), 1, 1},
		"a follow of one blocked":     join([]byte{pairFollowed | pairTheirs*byte(blockLive)}, follow),
	} {
		if _, err := decodePair(row); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a pair that is %s: %v", name, err)
		}
	}
	for name, x := range map[string]struct {
		row   []byte
		board string
	}{
		"empty":                    {nil, "art"},
		"of an unknown state":      {[]byte{4}, "art"},
		"never mentioned":          {[]byte{0, 1}, "art"},
		"a mentioned default one":  {[]byte{1, 1}, ""},
		"deleted and followed":     {[]byte{2, 1}, "art"},
		"with a zero at the end":   {[]byte{1, 1, 0}, "art"},
		"with counts too many":     {[]byte{1, 1, 1, 1, 1}, "art"},
		"followed by more by half": {[]byte{1, 1, 0, 2}, "art"},
	} {
		if _, err := decodeBoard(x.row, x.board); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a board that is %s: %v", name, err)
		}
	}
	for _, row := range [][]byte{{}, follow[:7], append(bytes.Clone(follow), 0), make([]byte, 8)} {
		if _, err := decodeEdge(row); !errors.Is(err, ErrCorrupt) {
			t.Errorf("edge %x: %v", row, err)
		}
	}
}

// FuzzRelationRows: what decodes is what encodes.
func FuzzRelationRows(f *testing.F) {
	at := rankOf(&events.Event{Kind: events.UserFollowed, Time: 7})
	for _, r := range []pairRow{{followed: at}, {unfollowed: at | 1, mine: blockLive}, {theirs: blockEnded, edges: 600, follows: 500}} {
		f.Add(r.append(nil))
	}
	f.Add((&boardRow{boardLives, boardTally{3, 2, 1}}).append(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		if r, err := decodePair(row); err == nil && !bytes.Equal(r.append(nil), row) {
			t.Fatalf("pair %x", row)
		}
		for _, board := range []string{"", "art"} {
			if r, err := decodeBoard(row, board); err == nil && !bytes.Equal(r.append(nil), row) {
				t.Fatalf("board %x", row)
			}
		}
		var tally userTally
		if err := readCounts(row, tally[:]); err == nil && !bytes.Equal(appendCounts(nil, tally[:]), row) {
			t.Fatalf("counts %x", row)
		}
	})
}
