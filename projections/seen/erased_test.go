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

// mentions counts the rows that have the id of a user, as text or as keys have it.
func (j *journal) mentions(user string) (n int) {
	j.t.Helper()
	key := bytes.TrimRight(events.AppendID(nil, user)[1:], "\x00")
	j.rows(func(k, v []byte) {
		in := func(b []byte) bool { return bytes.Contains(b, key) || bytes.Contains(b, []byte(user)) }
		if in(k) || in(v) {
			n++
		}
	})
	return n
}

// eventful is a log in which a user has rows of every kind: months that are dropped in part,
// sealed, late, and open.
func eventful(t *testing.T, user string) *journal {
	t.Helper()
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	for m := range 7 {
		j.at(monthStart(2026, 5+m)).add(plays(user, numbers(100*m, 50)...)...)
		j.add(plays("neighbor", numbers(0, 3)...)...)
		if m < 6 {
			j.tick(monthStart(2026, 5+m) + 20*day)
			j.tick(monthStart(2026, 6+m) - 1000)
		}
	}
	j.add(backfills(monthStart(2026, 8)+day, user, numbers(5000, 20)...)...)
	j.add(events.Event{Kind: events.Served, User: user, Items: numbers(0, 100)},
		events.Event{Kind: events.Served, User: user, Items: numbers(50, 100), Backfill: true, Time: 5})
	return j
}

// users have ids of every form.
var users = []string{"raw-user-one", "8877665544332211001", "0badcafe-9dad-4dd1-8bbb-00c04fd43099"}

// TestErasedUserLeavesNoRow: nothing names a deleted user, or one whose seen was emptied, and
// nothing comes back: no row, no play, no serve of any month, whatever imports bring later (I12).
// Later events of the user count as usual.
func TestErasedUserLeavesNoRow(t *testing.T) {
	for _, user := range users {
		for _, kind := range []events.Kind{events.UserDeleted, events.SeenCleared} {
			t.Run(fmt.Sprint(user, " ", kind), func(t *testing.T) {
				j := eventful(t, user)
				defer j.close()
				if n := j.mentions(user); n != 9 {
					t.Fatalf("%d rows name the user, want 7 months, one twice, and serves", n)
				}
				neighbor := j.mentions("neighbor")
				j.add(events.Event{Kind: kind, User: user})
				mustBeEmpty(t, j, user, "at once")
				for m := range 7 {
					j.add(backfills(monthStart(2026, 5+m)+2*day, user, numbers(100*m, 50)...)...)
				}
				j.add(events.Event{Kind: events.Served, User: user, Items: numbers(0, 100), Backfill: true, Time: 5})
				mustBeEmpty(t, j, user, "after an import")
				j.add(plays(user, "7")...)
				j.add(events.Event{Kind: events.Served, User: user, Items: []string{"8"}})
				if unseen := j.ask(user, 6, "7", "8", "100"); !slices.Equal(unseen, []uint32{1, 2}) {
					t.Errorf("%v are unseen after a play", unseen)
				}
				if served := j.served(user); !slices.Equal(served, []string{"8"}) {
					t.Errorf("%v were served", served)
				}
				if n := j.mentions("neighbor"); n != neighbor {
					t.Errorf("%d of %d rows of another user are left", n, neighbor)
				}
				j.tick(monthStart(2026, 12) + 10*day)
				if unseen := j.ask(user, 6, "7", "8", "100"); !slices.Equal(unseen, []uint32{1, 2}) {
					t.Errorf("%v are unseen once the month was sealed", unseen)
				}
				j.rebuilt(t)
			})
		}
	}
}

func mustBeEmpty(t *testing.T, j *journal, user, when string) {
	t.Helper()
	if n := j.mentions(user); n != 0 {
		t.Errorf("%s: %d rows name the user", when, n)
	}
	if items := numbers(0, 700); len(j.ask(user, 6, items...)) != len(items) {
		t.Errorf("%s: some items are seen", when)
	}
	if served := j.served(user); len(served) > 0 {
		t.Errorf("%s: %v were served", when, served)
	}
}

// served lists what was served to a user.
func (j *journal) served(user string) []string {
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

// TestErasedWhileMaintenanceIsAtWork deletes users at any hour of the weeks in which a month is
// sealed and another is dropped.
func TestErasedWhileMaintenanceIsAtWork(t *testing.T) {
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	const users = 120
	for m := range 6 {
		j.at(monthStart(2026, 5+m)).add(crowd(users, "1", "2")...)
		j.tick(monthStart(2026, 5+m) + 20*day)
	}
	for i := range users {
		user := fmt.Sprint("user", i)
		j.tick(monthStart(2026, 11) + events.Micros(i)*10*day/users)
		j.add(backfills(monthStart(2026, 7)+day, user, "3")...)
		j.add(events.Event{Kind: events.UserDeleted, User: user})
		j.rows(func(key, _ []byte) {
			if bytes.Contains(key, append([]byte(user), 0)) {
				t.Errorf("%x is left of %s", key, user)
			}
		})
	}
	if n := j.mentions("user"); n != 0 {
		t.Errorf("%d rows name deleted users", n)
	}
	j.rebuilt(t)
}

// TestClosedBackfillsForgetErasedUsers: once no backfill can come, nothing is remembered of those
// who were deleted.
func TestClosedBackfillsForgetErasedUsers(t *testing.T) {
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	count := func() (n int) {
		j.rows(func(key, _ []byte) {
			if projections.Tag(key[2]) == projections.FirstSeenTag+3 {
				n++
			}
		})
		return n
	}
	j.at(monthStart(2026, 5)).add(events.Event{Kind: events.UserDeleted, User: "ann"}, events.Event{Kind: events.UserDeleted, User: "bob"})
	if n := count(); n != 2 {
		t.Fatalf("%d users are remembered", n)
	}
	j.add(events.Event{Kind: events.BackfillClosed})
	j.add(events.Event{Kind: events.UserDeleted, User: "ann"}, events.Event{Kind: events.UserDeleted, User: "cid"})
	if n := count(); n != 1 {
		t.Errorf("%d users are remembered, want bob alone", n)
	}
}
