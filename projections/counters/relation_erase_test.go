package counters

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/model/histories"
)

// relationLog makes events of one envelope each, a second apart.
type relationLog struct{ list []events.Event }

func (l *relationLog) add(list ...events.Event) {
	for _, ev := range list {
		n := len(l.list) + 1
		if ev.Seq = uint64(n); !ev.Backfill {
			ev.Time = histories.Start + events.Micros(n)*1_000_000
		}
		l.list = append(l.list, ev)
	}
}

// relationRows returns the rows about relations, keys in hexadecimal.
func relationRows(t failer, s *projections.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	eachRelation(t, s, func(key, value []byte) { all[fmt.Sprintf("%x", key)] = fmt.Sprintf("%x", value) })
	return all
}

// crowd is a celebrity with followers of every sort: explicit, by board, with exclusions, blocked, gone.
func crowd(n int) *relationLog {
	l := &relationLog{}
	for i := range n {
		fan := fmt.Sprintf("fan%d", i)
		l.add(events.Event{Kind: events.UserFollowed, User: fan, Peer: "starlet"})
		switch i % 6 {
		case 0:
			l.add(events.Event{Kind: events.BoardUnfollowed, User: fan, Peer: "starlet", Board: "art"})
		case 1:
			l.add(events.Event{Kind: events.UserUnfollowed, User: fan, Peer: "starlet"})
			l.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "starlet", Board: "art"})
		case 2:
			l.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "starlet", Board: "art"})
			l.add(events.Event{Kind: events.BoardFollowed, User: "starlet", Peer: fan, Board: "art"})
		case 3:
			l.add(events.Event{Kind: events.UserBlocked, User: "starlet", Peer: fan})
		case 4:
			l.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "starlet", Board: ""})
			l.add(events.Event{Kind: events.UserFollowed, User: "starlet", Peer: fan})
			l.add(events.Event{Kind: events.BoardUnfollowed, User: "starlet", Peer: fan, Board: "art"})
		}
	}
	return l
}

// TestErasedRelations: after the deletion of a user no row about relations holds the id (I12), and what stays is what there
// would be had the others only ever dealt with each other.
func TestErasedRelations(t *testing.T) {
	l := crowd(600)
	l.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "fan1"})
	rest := []events.Event{l.list[len(l.list)-1]}
	for i := range 600 {
		if i%6 == 2 || i%6 == 4 { // boards that were mentioned live on
			rest = append(rest, events.Event{
				Kind: events.BoardCreated, User: fmt.Sprintf("fan%d", i), Board: "art",
				Seq: uint64(1e6 + i), Time: histories.Start + 1e12 + events.Micros(i),
			})
		}
	}
	l.add(events.Event{Kind: events.UserDeleted, User: "starlet"})
	s, only := relationStore(t, projections.Bounds{}), relationStore(t, projections.Bounds{})
	defer s.Close()
	defer only.Close()
	foldRelations(t, s, l.list)
	foldRelations(t, only, rest)
	checkErased(t, s, "starlet")
	got := relationRows(t, s)
	tombstones := 0
	maps.DeleteFunc(got, func(key, _ string) bool {
		stone := key[4:6] == fmt.Sprintf("%02x", byte(tagTombstone))
		if stone {
			tombstones++
		}
		return stone
	})
	if tombstones != 1 {
		t.Errorf("%d tombstones", tombstones)
	}
	if diff := cmp.Diff(relationRows(t, only), got); diff != "" {
		t.Error(diff)
	}
}

// checkErased looks for an id in all rows about relations, as text and as keys have it.
func checkErased(t failer, s *projections.Store, user string) {
	t.Helper()
	id := bytes.TrimRight(events.AppendID(nil, user)[1:], "\x00")
	eachRelation(t, s, func(key, value []byte) {
		for _, part := range [][]byte{key, value} {
			if bytes.Contains(part, id) || bytes.Contains(part, []byte(user)) {
				t.Fatalf("%s stands in %x = %x", user, key, value)
			}
		}
	})
}

// TestErasedRelationsOfHistories: the same, with any history, and an import that comes again.
func TestErasedRelationsOfHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, victim := deletion(t, histories.History(t, histories.Options{Feeds: rapid.Bool().Draw(t, "feeds")}))
		s := relationStore(t, rapid.SampledFrom([]projections.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds"))
		defer s.Close()
		foldRelations(t, s, history)
		checkErased(t, s, victim)
		compareRelations(t, s, history)
	})
}

// TestRelationsEndInSteps: a deletion that is committed in many steps leaves the rows of one that is not.
func TestRelationsEndInSteps(t *testing.T) {
	for _, end := range []events.Event{
		{Kind: events.UserDeleted, User: "starlet"},
		{Kind: events.BoardDeleted, User: "starlet", Board: "art"},
	} {
		l := crowd(3000)
		l.add(end)
		l.add(events.Event{Kind: events.BoardCreated, User: "starlet", Board: "art"})
		l.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "starlet"})
		var rows []map[string]string
		for _, bounds := range []projections.Bounds{{BatchBytes: 1 << 30}, {BatchBytes: 4 << 10}} {
			s := relationStore(t, bounds)
			foldRelations(t, s, l.list)
			rows = append(rows, relationRows(t, s))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(rows[0], rows[1]); diff != "" {
			t.Errorf("%s: %s", end.Kind, diff)
		}
	}
}

// TestRelationsForget: once all backfills are closed, rows by which nothing holds are dropped when they are touched.
func TestRelationsForget(t *testing.T) {
	l := &relationLog{}
	l.add(
		events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"},
		events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: ""},
		events.Event{Kind: events.BoardFollowed, User: "ann", Peer: "bob", Board: "art"},
		events.Event{Kind: events.UserFollowed, User: "ann", Peer: "cid"},
		events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "cid", Board: ""},
		events.Event{Kind: events.UserBlocked, User: "ann", Peer: "dan"},
		events.Event{Kind: events.UserUnblocked, User: "ann", Peer: "dan"},
		events.Event{Kind: events.UserDeleted, User: "eve"},
		events.Event{Kind: events.BackfillClosed},
	)
	touch := []events.Event{
		{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"},
		{Kind: events.UserUnfollowed, User: "ann", Peer: "cid"},
		{Kind: events.UserUnblocked, User: "ann", Peer: "dan"},
		{Kind: events.UserUnblocked, User: "dan", Peer: "ann"},
		{Kind: events.UserDeleted, User: "eve"},
		{Kind: events.BoardDeleted, User: "bob", Board: "art"},
		{Kind: events.BoardCreated, User: "bob", Board: "art"},
	}
	s := relationStore(t, projections.Bounds{})
	defer s.Close()
	before := len(l.list)
	l.add(touch...)
	foldRelations(t, s, l.list[:before])
	if n := len(relationRows(t, s)); n < 20 {
		t.Fatalf("%d rows before", n)
	}
	foldRelations(t, s, l.list[before:])
	board := boardRow{state: boardLives}
	tally := userTally{userBoards: 1}
	want := map[string]string{
		fmt.Sprintf("%x", projections.AppendKey(nil, tagBoardRelations, "bob", "art")): fmt.Sprintf("%x", board.append(nil)),
		fmt.Sprintf("%x", projections.AppendKey(nil, tagUserRelations, "bob")):         fmt.Sprintf("%x", appendCounts(nil, tally[:])),
	}
	if diff := cmp.Diff(want, relationRows(t, s)); diff != "" {
		t.Error(diff)
	}
}
