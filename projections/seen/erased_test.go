package seen_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// countRowsNaming returns the number of rows that have the id of a user, as text or as keys encode it.
func (j *testLog) countRowsNaming(user string) (n int) {
	j.t.Helper()
	encodedID := bytes.TrimRight(events.AppendID(nil, user)[1:], "\x00")
	hasID := func(b []byte) bool { return bytes.Contains(b, encodedID) || bytes.Contains(b, []byte(user)) }
	j.eachRow(func(k, v []byte) {
		if hasID(k) || hasID(v) {
			n++
		}
	})
	return n
}

// newLogWithEveryRow makes a log in which a user has rows of every kind: of months that are dropped in
// part, sealed, open, and of late plays.
func newLogWithEveryRow(t *testing.T, user string) *testLog {
	t.Helper()
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	for m := range 7 {
		j.advanceTo(monthStart(2026, 5+m)).add(newPlays(user, itemNumbers(100*m, 50)...)...)
		j.add(newPlays("neighbor", itemNumbers(0, 3)...)...)
		if m < 6 {
			j.maintainAt(monthStart(2026, 5+m) + 20*day)
			j.maintainAt(monthStart(2026, 6+m) - 1000)
		}
	}

	j.add(newBackfills(monthStart(2026, 8)+day, user, itemNumbers(5000, 20)...)...)
	j.add(events.Event{Kind: events.Served, User: user, Items: itemNumbers(0, 100)},
		events.Event{Kind: events.Served, User: user, Items: itemNumbers(50, 100), Backfill: true, Time: 5})
	return j
}

// users have ids of every form.
var users = []string{"raw-user-one", "8877665544332211001", "0badcafe-9dad-4dd1-8bbb-00c04fd43099"}

// TestErasedUserLeavesNoRow checks that no row names a deleted user, or a user whose seen items were
// cleared. No row, play or serve of any month comes back, whatever imports bring later (I12). Later
// events of the user count as usual.
func TestErasedUserLeavesNoRow(t *testing.T) {
	for _, user := range users {
		for _, kind := range []events.Kind{events.UserDeleted, events.SeenCleared} {
			t.Run(fmt.Sprint(user, " ", kind), func(t *testing.T) {
				j := newLogWithEveryRow(t, user)
				defer j.close()
				if n := j.countRowsNaming(user); n != 9 {
					t.Fatalf("got %d rows that name the user, want 9: 7 months, one of them twice, and serves", n)
				}

				neighbor := j.countRowsNaming("neighbor")
				j.add(events.Event{Kind: kind, User: user})
				checkEmpty(t, j, user, "after the erasure")

				// An import of old plays and serves brings nothing back.
				for m := range 7 {
					j.add(newBackfills(monthStart(2026, 5+m)+2*day, user, itemNumbers(100*m, 50)...)...)
				}
				j.add(events.Event{Kind: events.Served, User: user, Items: itemNumbers(0, 100), Backfill: true, Time: 5})
				checkEmpty(t, j, user, "after an import")

				// Later plays and serves count, also when their month is sealed.
				j.add(newPlays(user, "7")...)
				j.add(events.Event{Kind: events.Served, User: user, Items: []string{"8"}})
				if unseen := j.findUnseen(user, 6, "7", "8", "100"); !slices.Equal(unseen, []uint32{1, 2}) {
					t.Errorf("after a later play: got the indexes %v of unseen items, want [1 2]", unseen)
				}
				if served := j.mustReadServed(user); !slices.Equal(served, []string{"8"}) {
					t.Errorf("after a later serve: got the served items %v, want [8]", served)
				}
				if n := j.countRowsNaming("neighbor"); n != neighbor {
					t.Errorf("got %d rows that name another user, want %d as before", n, neighbor)
				}
				j.maintainAt(monthStart(2026, 12) + 10*day)
				if unseen := j.findUnseen(user, 6, "7", "8", "100"); !slices.Equal(unseen, []uint32{1, 2}) {
					t.Errorf("after the month was sealed: got the indexes %v of unseen items, want [1 2]", unseen)
				}
				j.checkRebuild(t)
			})
		}
	}
}

// checkEmpty checks that no row names a user, and that the user has seen nothing.
func checkEmpty(t *testing.T, j *testLog, user, when string) {
	t.Helper()
	if n := j.countRowsNaming(user); n != 0 {
		t.Errorf("%s: got %d rows that name the user, want none", when, n)
	}
	items := itemNumbers(0, 700)
	if unseen := j.findUnseen(user, 6, items...); len(unseen) != len(items) {
		t.Errorf("%s: got %d unseen items, want all %d", when, len(unseen), len(items))
	}
	if served := j.mustReadServed(user); len(served) > 0 {
		t.Errorf("%s: got the served items %v, want none", when, served)
	}
}

// mustReadServed returns the items that were served to a user.
func (j *testLog) mustReadServed(user string) []string {
	j.t.Helper()
	v, err := j.store.View()
	if err != nil {
		j.t.Fatalf("view: %v", err)
	}
	defer v.Close()
	served, err := seen.Query(v, j.settings).Served(user)
	if err != nil {
		j.t.Fatalf("served: %v", err)
	}
	return served
}

// TestErasedWhileMaintenanceIsAtWork deletes users at different times of the weeks in which a month is
// sealed and another is dropped. No row may name them.
func TestErasedWhileMaintenanceIsAtWork(t *testing.T) {
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	const users = 120
	for m := range 6 {
		j.advanceTo(monthStart(2026, 5+m)).add(newPlaysOfUsers(users, "1", "2")...)
		j.maintainAt(monthStart(2026, 5+m) + 20*day)
	}

	for i := range users {
		user := fmt.Sprint("user", i)
		j.maintainAt(monthStart(2026, 11) + events.Micros(i)*10*day/users)
		j.add(newBackfills(monthStart(2026, 7)+day, user, "3")...)
		j.add(events.Event{Kind: events.UserDeleted, User: user})
		j.eachRow(func(key, _ []byte) {
			if bytes.Contains(key, append([]byte(user), 0)) {
				t.Errorf("got the row %x of %s after the deletion, want none", key, user)
			}
		})
	}
	if n := j.countRowsNaming("user"); n != 0 {
		t.Errorf("got %d rows that name deleted users, want none", n)
	}
	j.checkRebuild(t)
}

// TestClosedBackfillsForgetErasedUsers checks that no row about a deleted user is left once no
// backfill can arrive.
func TestClosedBackfillsForgetErasedUsers(t *testing.T) {
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	countTombstones := func() (n int) {
		j.eachRow(func(key, _ []byte) {
			if projections.Tag(key[2]) == projections.FirstSeenTag+3 {
				n++
			}
		})
		return n
	}

	// Each deletion leaves a tombstone while backfills can arrive.
	deleteUser := func(user string) events.Event { return events.Event{Kind: events.UserDeleted, User: user} }
	j.advanceTo(monthStart(2026, 5)).add(deleteUser("ann"), deleteUser("bob"))
	if n := countTombstones(); n != 2 {
		t.Fatalf("got %d tombstones, want 2", n)
	}

	j.add(events.Event{Kind: events.BackfillClosed})
	j.add(deleteUser("ann"), deleteUser("cid"))
	if n := countTombstones(); n != 1 {
		t.Errorf("after backfills were closed: got %d tombstones, want only that of bob", n)
	}
}
